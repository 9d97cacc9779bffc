"""What an API is to the listener: a key, a range of versions, and a function that answers.

A handler gets the call and the request's body. It returns the answer as a tree (`codec.schemas`),
or None where the client expects no answer; or an awaitable of that:

- a coroutine: later requests of the connection begin only when it has returned;
- a future: later requests begin at once, and are answered behind it. A handler that parks (Fetch,
  JoinGroup) or waits for a commit (Produce) does its work up to there and returns a future.

A coroutine may return a future too.

Invariant: a handler raises nothing because of what a client asks for: it answers with an error
code.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from samelog.kafka.clients.memory import Memory
from samelog.kafka.clients.quotas import Allowance, Allowances
from samelog.kafka.clients.sasl import Authenticator, SaslExchange
from samelog.kafka.codec.schemas import Tree, read_request, write_response
from samelog.runtime.counters import ListenerTally

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from samelog.kafka.any_broker import AnyBroker
    from samelog.kafka.broker import Broker

Now = Any
"""An answer: a tree, or whatever the API's own codec writes; None: no answer."""
Later = Future[Any]
Outcome = Now | Later | Coroutine[Any, Any, Now | Later]


@dataclass(slots=True)
class KafkaClient:
    """Who is at the other end of a connection."""

    identity: str
    """As rights are granted to; empty until it has authenticated."""
    listener: str
    host: str
    software: str = ""
    """What it says of itself, for the log."""
    authenticator: Authenticator | None = None
    """Of a listener that asks for names and passwords."""
    exchange: SaslExchange | None = None
    """An authentication under way."""
    rejected: str = ""
    """Why it is not to be answered any more."""
    memory: Memory[Any] | None = None
    """What all clients of the listener hold together."""
    allowances: Allowances | None = None
    """Where there are quotas."""
    allowance: Allowance | None = None
    """What its identity has used, if there is a quota for it."""
    tally: ListenerTally = field(default_factory=ListenerTally)
    """What went through the listener."""
    at_end: list[Callable[[], None]] = field(default_factory=list)
    """To be called when the connection is over."""


BrokerT_co = TypeVar("BrokerT_co", bound="AnyBroker", covariant=True)
AskedT_contra = TypeVar("AskedT_contra", bound="AnyBroker", contravariant=True)


@dataclass(frozen=True, slots=True)
class CallTo(Generic[BrokerT_co]):
    """One request: who asks whom, in which version."""

    broker: BrokerT_co
    client: KafkaClient
    client_id: str
    version: int


NodeCall: TypeAlias = "CallTo[Broker]"
"""To a node."""
AnyCall: TypeAlias = "CallTo[AnyBroker]"
"""To a node or to a sidecar."""


def _read(api: KafkaApi[Any], version: int, body: memoryview) -> Any:
    return read_request(api.key, version, body)


def _write(api: KafkaApi[Any], version: int, answer: Tree, throttle_ms: int) -> list[Buffer]:
    return [write_response(api.key, version, answer, throttle_ms)]


def _settle(answer: Any) -> tuple[Any, int]:
    return answer, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaApi(Generic[AskedT_contra]):
    """One API key, as it is served by whom `handle` may ask. Versions `first` to `last` are
    advertised; `flexible_from`: see KIP-482.
    """

    key: int
    name: str
    first: int
    last: int
    flexible_from: int
    handle: Callable[[CallTo[AskedT_contra], Any], Outcome]
    notes: str
    """What a user has to know beyond Kafka's own documentation; one paragraph of docs/kafka.md."""
    before_authentication: bool = False
    read: Callable[[KafkaApi[Any], int, memoryview], Any] = field(default=_read)
    settle: Callable[[Any], tuple[Any, int]] = field(default=_settle)
    """The answer as it is to be written, and how many bytes of records it has."""
    write: Callable[[KafkaApi[Any], int, Any, int], list[Buffer]] = field(default=_write)
    """(this, version, answer, throttle time in ms) -> the answer's body."""

    def is_flexible(self, version: int) -> bool:
        """Whether a version has tagged fields."""
        return version >= self.flexible_from
