"""From a request's bytes to the handler's answer, and from that to the answer's bytes.

Invariant: before a client of an authenticating listener has authenticated, it gets at nothing but
what authentication takes.
"""

from __future__ import annotations

import logging
from asyncio import Future
from collections.abc import Coroutine, Mapping
from types import CoroutineType
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from samelog.kafka.any_broker import AnyBroker, KafkaClient, Uncharged
from samelog.kafka.api import CallTo, KafkaApi, KafkaResponse, MaybeResponse, Reply
from samelog.kafka.apis import produce, session
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import MalformedRequest, ManyElements, UnsupportedRequest
from samelog.kafka.codec.framing import RequestHeader, read_client_id, read_header, response_header
from samelog.kafka.codec.primitives import (
    ELEMENTS_AT_ONCE,
    ELEMENTS_MAX,
    ByteBuffer,
    MessageReader,
)
from samelog.kafka.codec.schemas import BODY_BYTES, read_request, reading_request
from samelog.kafka.parts import JoinedResponse
from samelog.runtime.clock import SystemClock
from samelog.runtime.log import RateLimitedLog
from samelog.runtime.slices import give_way, paced

log = logging.getLogger(__name__)

ServingT = TypeVar("ServingT", bound=AnyBroker)


class StartedRequest(msgspec.Struct, frozen=True):
    """A request whose handler was called: what came of it, and how that is written."""

    outcome: Reply
    api: KafkaApi[Any]
    version: int
    """Of the answer's body."""
    header: bytes
    size: int
    """Of the request, in bytes."""

    def encode(
        self, answer: MaybeResponse, client: KafkaClient, now: float
    ) -> tuple[list[ByteBuffer] | Coroutine[Any, Any, list[ByteBuffer]] | None, float]:
        """The answer's bytes, None where the client expects none, or what writes a long answer; and
        for how many seconds to take nothing more from the client. Counts the request for its
        client.
        """
        read = 0 if answer is None else answer.record_bytes()
        tally = client.tally
        tally.requests += 1
        tally.in_bytes += self.size
        tally.out_bytes += read
        pause_s = 0.0
        if client.allowances is not None and client.allowances.limits_anybody():
            pause_s = self._pause_s(client, read, now)
        if answer is None:
            return None, pause_s
        try:
            body = answer.encode(self.api.key, self.version, round(pause_s * 1000))
        except ManyElements:
            return self._encode_long(answer, pause_s), pause_s
        return [self.header, *body], pause_s

    async def _encode_long(self, answer: KafkaResponse, pause_s: float) -> list[ByteBuffer]:
        encoding = answer.encoding(self.api.key, self.version, round(pause_s * 1000))
        return [self.header, *await paced(encoding)]

    def _pause_s(self, client: KafkaClient, read: int, now: float) -> float:
        """How long the client's quota is exceeded. `read`: bytes of records in the answer."""
        known, of_all, name = client.allowance, client.allowances, client.client_id
        is_known = known is not None and known.is_for(name)
        if of_all is not None and client.identity and not is_known:
            client.allowance = of_all.of(client.identity, now, name)
        if client.allowance is None:
            return 0.0
        is_write = self.api.key == produce.produce.key
        beyond, client.uncharged = client.uncharged, Uncharged()
        written = self.size + beyond.unpacked_bytes if is_write else 0
        requests = 1 + beyond.elements // ELEMENTS_AT_ONCE
        return client.allowance.charge(now, requests=requests, written=written, read=read)


class ApiDispatcher(Generic[ServingT]):
    """Calls the handlers of one node, or of one sidecar."""

    def __init__(self, broker: ServingT, apis: Mapping[int, KafkaApi[ServingT]]) -> None:
        self._broker = broker
        self._apis = apis
        self.log = RateLimitedLog(log, SystemClock())

    def start(self, client: KafkaClient, frame: memoryview) -> StartedRequest:
        """Call the handler of a request. Raises MalformedRequest, UnsupportedRequest."""
        header = read_header(frame)
        api = self._apis.get(header.key)
        if api is None:
            raise UnsupportedRequest(f"API key {header.key} is not served")
        if not client.identity and not api.before_authentication:
            raise UnsupportedRequest(f"{api.name} before authentication")
        version = header.version
        if not api.first <= version <= api.last:
            return self._unsupported(api, header)
        flexible = version >= api.flexible_from
        try:
            client_id, at = read_client_id(frame, flexible=flexible)
        except MalformedRequest as error:
            raise MalformedRequest(f"{api.name} version {version}: {error}") from error
        client.client_id, body, size = client_id, frame[at:], len(frame)
        if size - at > BODY_BYTES:
            _check_length(api, body)
        call = CallTo(self._broker, client, client_id, version)
        try:
            request = api.read(version, body) if api.read else read_request(api.key, version, body)
        except ManyElements:
            call = replace(call, is_long=True)
            reader = MessageReader(body, flexible=flexible)
            outcome: Reply = self._handle_long(api, call, reader)
        except MalformedRequest as error:
            raise MalformedRequest(f"{api.name} version {version}: {error}") from error
        else:
            outcome = api.handle(call, request)
        head = response_header(header, flexible=flexible)
        return StartedRequest(outcome, api, version, head, size)

    async def _handle_long(
        self, api: KafkaApi[ServingT], call: CallTo[ServingT], reader: MessageReader
    ) -> Any:
        """Read and handle a request that is too long for one turn of the event loop. Raises
        MalformedRequest.
        """
        limit = ELEMENTS_MAX if api.creates else call.broker.elements_max
        reader.elements_left = limit
        try:
            if api.reading is not None:
                request = await paced(api.reading(call.version, reader))
            else:
                request = await paced(reading_request(api.key, call.version, reader))
        except ManyElements as error:
            text = f"{api.name}: more than {limit} elements, which is more than the cluster has"
            raise MalformedRequest(text) from error
        except MalformedRequest as error:
            raise MalformedRequest(f"{api.name} version {call.version}: {error}") from error
        call.client.uncharged.elements += limit - reader.elements_left
        if api.parts is None:
            outcome: Any = api.handle(call, request)
            return await outcome if isinstance(outcome, CoroutineType) else outcome
        joined = JoinedResponse(api.parts)
        for part in api.parts.cut(request):
            await give_way()
            answer: Any = api.handle(call, part)
            while isinstance(answer, CoroutineType | Future):
                answer = await answer
            joined.add(answer)
        return joined.response()

    def _unsupported(self, api: KafkaApi[Any], header: RequestHeader) -> StartedRequest:
        if api.key != session.KEY:
            raise UnsupportedRequest(f"{api.name} has no version {header.version} here")
        answer = session.list_of(self._apis.values(), ErrorCode.unsupported_version)
        return StartedRequest(answer, api, 0, response_header(header, flexible=False), 0)


def _check_length(api: KafkaApi[Any], body: memoryview) -> None:
    """Raises MalformedRequest if a request is too long that has no records."""
    if api.key != produce.produce.key:
        text = f"{len(body)} bytes; at most {BODY_BYTES} are taken of such a request"
        raise MalformedRequest(f"{api.name}: {text}")
