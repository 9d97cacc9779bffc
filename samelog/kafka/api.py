"""What an API is to the listener: a key, a range of versions, and a function that answers.

A handler gets the call and the request's body. It returns the response, or None where the client
expects none; or an awaitable of that:

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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from samelog.format.steps import StepWork
from samelog.kafka.any_broker import AnyBroker, KafkaClient
from samelog.kafka.codec.primitives import ByteBuffer, MessageReader
from samelog.kafka.parts import Parts

if TYPE_CHECKING:
    from samelog.kafka.broker import Broker


class KafkaResponse(Protocol):
    """What a handler returns: a response that can be encoded."""

    def record_bytes(self) -> int:
        """How many bytes of records it has; called once, when it is its turn to be sent."""

    def encode(self, key: int, version: int, throttle_ms: int) -> list[ByteBuffer]:
        """The body, for a version of the API with that key; called after `record_bytes`.
        `throttle_ms`: how long the client is to wait before it asks again. Raises ManyElements if
        the response is too long for one turn of the event loop: then `encoding` is called.
        """

    def encoding(self, key: int, version: int, throttle_ms: int) -> StepWork[list[ByteBuffer]]:
        """The body of a response of any size, in steps."""


MaybeResponse: TypeAlias = KafkaResponse | None
Reply: TypeAlias = (
    MaybeResponse
    | Future[MaybeResponse]
    | Coroutine[Any, Any, MaybeResponse | Future[MaybeResponse]]
)
"""What a handler returns, see the module."""

BrokerT_co = TypeVar("BrokerT_co", bound=AnyBroker, covariant=True)
AskedT_contra = TypeVar("AskedT_contra", bound=AnyBroker, contravariant=True)


class CallTo(msgspec.Struct, Generic[BrokerT_co], frozen=True):
    """One request: who asks whom, in which version."""

    broker: BrokerT_co
    client: KafkaClient
    client_id: str
    version: int
    is_long: bool = False
    """The request has more elements than one turn of the event loop handles."""


NodeCall: TypeAlias = "CallTo[Broker]"
"""To a node."""
AnyCall: TypeAlias = CallTo[AnyBroker]
"""To a node or to a sidecar."""


HandlerOf: TypeAlias = Callable[[CallTo[AskedT_contra], Any], Reply]


@dataclass(frozen=True, slots=True)
class KafkaApi(Generic[AskedT_contra]):
    """One API key, as it is served by whom `handle` may ask. Versions `first` to `last` are
    advertised; `flexible_from`: see KIP-482.
    """

    key: int
    name: str
    first: int
    last: int
    flexible_from: int
    handle: HandlerOf[AskedT_contra]
    notes: str = ""
    """What a user has to know beyond Kafka's own documentation; one paragraph of docs/kafka.md."""
    before_authentication: bool = False
    audit: Callable[[Any], Any] = lambda request: request
    """What of a request the audit log may say."""
    read: Callable[[int, memoryview], Any] | None = None
    """(version, body) -> request, raising MalformedRequest, or ManyElements if the request is too
    long for one turn of the event loop; None: by Kafka's description.
    """
    reading: Callable[[int, MessageReader], StepWork[Any]] | None = None
    """The same in steps, for a request of as many elements as the reader takes."""
    parts: Parts | None = None
    """Splits a long request into short ones, or None if the handler paces itself."""
    creates: bool = False
    """Requests may name more than what exists in the cluster."""

    def is_flexible(self, version: int) -> bool:
        """Whether a version has tagged fields."""
        return version >= self.flexible_from


def kafka_api(
    key: int, name: str, first: int, last: int, **options: Any
) -> Callable[[HandlerOf[AskedT_contra]], KafkaApi[AskedT_contra]]:
    """Makes a handler the API that it answers; `options` are the other fields of KafkaApi."""
    return lambda handle: KafkaApi(key, name, first, last, handle=handle, **options)
