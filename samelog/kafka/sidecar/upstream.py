"""A connection to a node's Kafka listener: requests out, answers in, in order, as bytes.

Invariant: every request is answered, or fails with Unanswerable when the connection is over.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Any, cast

import msgspec

from samelog.config.values import Address
from samelog.kafka.api import KafkaApi
from samelog.kafka.codec.errors import MalformedRequest, Unanswerable
from samelog.kafka.codec.frames import FrameReader
from samelog.kafka.codec.headers import RequestHeader, response_header
from samelog.kafka.codec.primitives import ByteBuffer

ANSWER_BYTES_MAX = 64 << 20
_HEAD = struct.Struct(">ihhih")


class ForwardedResponse(msgspec.Struct, frozen=True):
    """A response's body as the coordinator sent it. Implements api.KafkaResponse."""

    body: bytes

    def record_bytes(self) -> int:
        """Groups have no records."""
        return 0

    def encode(self, key: int, version: int, throttle_ms: int) -> list[ByteBuffer]:
        """The body as it came."""
        return [self.body]


class Upstream(asyncio.Protocol):
    """Made by an event loop's `create_connection`."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.is_over = False
        self._frames = FrameReader(ANSWER_BYTES_MAX)
        self._waiting: deque[tuple[int, asyncio.Future[ForwardedResponse]]] = deque()
        """How long the answer's header is, and who waits for what is behind it."""
        self._transport: asyncio.Transport | None = None
        self._is_retired = False

    def ask(
        self, api: KafkaApi[Any], version: int, client_id: str, body: bytes
    ) -> asyncio.Future[ForwardedResponse]:
        """Send a request: its answer's body."""
        answer: asyncio.Future[ForwardedResponse] = asyncio.get_running_loop().create_future()
        if self.is_over or self._transport is None:
            answer.set_exception(Unanswerable(f"the connection to {self.address} is over"))
            return answer
        flexible, name = api.is_flexible(version), client_id.encode()
        size = _HEAD.size - 4 + len(name) + flexible + len(body)
        head = _HEAD.pack(size, api.key, version, 0, len(name)) + name + b"\0" * flexible
        self._transport.write(head + body)
        header = response_header(RequestHeader(api.key, version, 0), flexible=flexible)
        self._waiting.append((len(header), answer))
        return answer

    def retire(self) -> None:
        """Close when what was asked is answered."""
        self._is_retired = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Close at once."""
        self.is_over = True
        if self._transport is not None:
            self._transport.close()

    # --- what the event loop calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Bytes of the node."""
        try:
            frames = self._frames.feed(data)
        except MalformedRequest:
            self.close()
            return
        for frame in frames:
            if not self._waiting:
                self.close()
                return
            header_bytes, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_result(ForwardedResponse(bytes(frame[header_bytes:])))
        if self._is_retired:
            self.retire()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self.is_over = True
        while self._waiting:
            _, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(Unanswerable(f"the connection to {self.address} was lost"))
