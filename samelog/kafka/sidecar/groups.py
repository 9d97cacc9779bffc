"""Consumer groups for clients of the subscriber sidecar: they are the cluster's, so what is asked
about them is passed on to the node that coordinates them, and answered with what it says.

Each client has a connection of its own to the coordinator, so that one that waits for a rebalance
holds up nobody else. The sidecar says of itself that it coordinates; whenever a client asks who
does, the nodes are asked.

An upstream connection carries requests and answers, in order, as bytes.

Invariant: nothing about groups is decided, kept or made up here.
Also: every request is answered, or fails with Unanswerable when the connection is over.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from samelog.config.tables.client import ClientConfig
from samelog.config.tables.kafka import Security
from samelog.config.values import Address, parse_address
from samelog.format.steps import StepWork
from samelog.kafka.any_broker import KafkaClient
from samelog.kafka.api import KafkaApi
from samelog.kafka.apis import find_coordinator
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import MalformedRequest, Unanswerable
from samelog.kafka.codec.framing import FrameReader, RequestHeader, response_header
from samelog.kafka.codec.primitives import ByteBuffer
from samelog.kafka.codec.schemas import read_response, write_request
from samelog.runtime.errors import TlsFault
from samelog.runtime.network.tls import open_client_context

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

    def encoding(self, key: int, version: int, throttle_ms: int) -> StepWork[list[ByteBuffer]]:
        """The same, in one step."""
        yield
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


ASK_S = 3.0
"""How long all nodes together may take to say who coordinates."""
ASK_VERSION = 4
CLIENT_ID = "samelog-sidecar"
NO_ANSWER = ErrorCode.coordinator_not_available, "no node says who coordinates: ask again"

Found = tuple[ErrorCode, str | None]


class GroupForwarder:
    """The way to the coordinator."""

    def __init__(
        self, bootstrap: Iterable[Address], context: Callable[[], ssl.SSLContext | None]
    ) -> None:
        """`context` makes what the next connection is protected with. Raises TlsFault."""
        self._bootstrap = tuple(bootstrap)
        self._context = context
        self._coordinator: Address | None = None
        self._upstreams: dict[int, Upstream] = {}

    @classmethod
    def of(cls, config: ClientConfig) -> GroupForwarder | None:
        """By the addresses in a client's configuration; None if it has none."""
        texts = config.kafka_bootstrap.split(",")
        addresses = [address for text in texts if (address := parse_address(text.strip()))]

        def context() -> ssl.SSLContext | None:
            if config.kafka_security is Security.PLAINTEXT:
                return None
            shows = config.kafka_security is Security.MTLS
            return open_client_context(config.tls, show_certificate=shows)

        return cls(addresses, context) if addresses else None

    # --- who coordinates --------------------------------------------------------------------------

    async def find(self, key: str) -> Found:
        """Ask the nodes who coordinates, and remember it; why there is none."""
        found: Found = NO_ANSWER
        known = () if self._coordinator is None else (self._coordinator,)
        try:
            async with asyncio.timeout(ASK_S):
                for address in (*known, *self._bootstrap):
                    found = await self._ask(address, key)
                    if found[0] is not ErrorCode.coordinator_not_available:
                        break
        except TimeoutError:
            return NO_ANSWER
        return found

    async def _ask(self, address: Address, key: str) -> Found:
        api = find_coordinator.find_coordinator
        tree = {"key_type": find_coordinator.GROUP, "coordinator_keys": [key]}
        body = write_request(api.key, ASK_VERSION, tree)
        try:
            upstream = await self._connect(address)
            try:
                answer = await upstream.ask(api, ASK_VERSION, CLIENT_ID, body)
                (found,) = read_response(api.key, ASK_VERSION, answer.body).coordinators
            finally:
                upstream.close()
        except (Unanswerable, MalformedRequest) as error:
            return ErrorCode.coordinator_not_available, str(error)
        if found.error_code is ErrorCode.none:
            self._coordinator = Address(found.host, found.port)
        return found.error_code, found.error_message

    async def _connect(self, address: Address) -> Upstream:
        """Raises Unanswerable."""
        try:
            context = self._context()
            async with asyncio.timeout(ASK_S):
                _, upstream = await asyncio.get_running_loop().create_connection(
                    lambda: Upstream(address), address.host, address.port, ssl=context
                )
        except (OSError, TlsFault) as error:
            raise Unanswerable(f"no connection to {address}: {error}") from error
        return upstream

    # --- passing on -------------------------------------------------------------------------------

    async def upstream_of(self, client: KafkaClient) -> Upstream:
        """A client's own connection to the coordinator. Raises Unanswerable."""
        if self._coordinator is None:
            raise Unanswerable("FindCoordinator has to come first")
        known = self._upstreams.get(id(client))
        if known is not None and not known.is_over and known.address == self._coordinator:
            return known
        upstream = await self._connect(self._coordinator)
        if known is None:
            client.at_end.append(lambda: self._ended(client))
        else:
            known.retire()
        self._upstreams[id(client)] = upstream
        return upstream

    def _ended(self, client: KafkaClient) -> None:
        self._upstreams.pop(id(client)).close()

    def close(self) -> None:
        """End all connections."""
        for upstream in self._upstreams.values():
            upstream.close()
