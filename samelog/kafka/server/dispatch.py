"""From a request's bytes to the handler's answer, and from that to the answer's bytes.

Invariant: before a client of an authenticating listener has authenticated, it gets at nothing but
what authentication takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kio.schema.errors import ErrorCode

from samelog.kafka.any_broker import AnyBroker
from samelog.kafka.api import CallTo, KafkaApi, KafkaClient, Outcome
from samelog.kafka.apis.session import api_versions
from samelog.kafka.codec.errors import MalformedRequest, UnsupportedRequest
from samelog.kafka.codec.headers import (
    RequestHeader,
    read_client_id,
    read_header,
    response_header,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

PRODUCE = 0
ServingT = TypeVar("ServingT", bound=AnyBroker)


@dataclass(frozen=True, slots=True)
class StartedRequest:
    """A request whose handler was called: what came of it, and how that is written."""

    outcome: Outcome
    api: KafkaApi[Any]
    version: int
    """Of the answer's body."""
    header: bytes
    size: int
    """Of the request, in bytes."""

    def pause_s(self, client: KafkaClient, read: int, now: float) -> float:
        """Count the request for its client: how long to take nothing more from it. `read`: bytes
        of records in the answer.
        """
        tally = client.tally
        tally.requests += 1
        tally.in_bytes += self.size
        tally.out_bytes += read
        if client.allowance is None and client.allowances is not None and client.identity:
            client.allowance = client.allowances.of(client.identity, now)
        if client.allowance is None:
            return 0.0
        return client.allowance.take(now, written=self.size if self.is_produce else 0, read=read)

    @property
    def is_produce(self) -> bool:
        """Whether it brings records."""
        return self.api.key == PRODUCE

    def encode(
        self, answer: Any, client: KafkaClient, now: float
    ) -> tuple[list[Buffer] | None, float]:
        """The answer's bytes, None where the client expects none; and how long to take nothing
        more from the client.
        """
        settled, read = (None, 0) if answer is None else self.api.settle(answer)
        pause_s = self.pause_s(client, read, now)
        if settled is None:
            return None, pause_s
        body = self.api.write(self.api, self.version, settled, round(pause_s * 1000))
        return [self.header, *body], pause_s


class ApiDispatcher(Generic[ServingT]):
    """Calls the handlers of one node, or of one sidecar."""

    def __init__(self, broker: ServingT, apis: Mapping[int, KafkaApi[ServingT]]) -> None:
        self._broker = broker
        self._apis = apis

    def start(self, client: KafkaClient, frame: memoryview) -> StartedRequest:
        """Call the handler of a request. Raises MalformedRequest, UnsupportedRequest."""
        header = read_header(frame)
        api = self._apis.get(header.key)
        if api is None:
            raise UnsupportedRequest(f"API key {header.key} is not served")
        if not client.identity and not api.before_authentication:
            raise UnsupportedRequest(f"{api.name} before authentication")
        if not api.first <= header.version <= api.last:
            return self._unsupported(api, header)
        flexible = api.is_flexible(header.version)
        try:
            client_id, at = read_client_id(frame, flexible=flexible)
            request = api.read(api, header.version, frame[at:])
        except MalformedRequest as error:
            what = f"{api.name} version {header.version}: {error}"
            raise MalformedRequest(what) from error
        call = CallTo(self._broker, client, client_id, header.version)
        answer_header = response_header(header, flexible=flexible)
        outcome = api.handle(call, request)
        return StartedRequest(outcome, api, header.version, answer_header, len(frame))

    def _unsupported(self, api: KafkaApi[Any], header: RequestHeader) -> StartedRequest:
        if api.key != api_versions.KEY:
            raise UnsupportedRequest(f"{api.name} has no version {header.version} here")
        apis = sorted(self._apis.values(), key=lambda api: api.key)
        answer = api_versions.answer(apis, ErrorCode.unsupported_version)
        return StartedRequest(answer, api, 0, response_header(header, flexible=False), 0)
