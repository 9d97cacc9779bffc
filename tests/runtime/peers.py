"""Both ends of connections for tests: handlers that record, a server, raw TLS clients."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from samelog.config.tables.node import ConnectionLimits
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address
from samelog.runtime.descriptors import Descriptors
from samelog.runtime.loop import run
from samelog.runtime.network.tls import ALPN, ReloadingContext, client_context
from samelog.runtime.network.transport import (
    Connection,
    Deadlines,
    Server,
    connect,
    serve,
)
from samelog.wire.bounds import Ack
from samelog.wire.messages import AnyMessage, ConnectionRole, Hello, decode_message
from tests.patience import PATIENCE_S
from tests.runtime.pki import Authority
from tests.wire.frame_decoder import FrameDecoder

HELLO = Hello(ConnectionRole.PUSH, cluster="demo")
QUICK = Deadlines(
    connect_s=2.0,
    handshake_s=0.4,
    first_frame_s=0.4,
    frame_s=0.6,
    idle_s=0.5,
    ping_s=0.1,
    close_s=0.3,
)

T = TypeVar("T")


def in_loop(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a test's coroutine as the product runs its own, but not for ever."""

    async def bounded() -> T:
        async with asyncio.timeout(2 * PATIENCE_S):
            return await main()

    return run(bounded())


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition, with a deadline. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - conditions of any kind, in tests only
            await asyncio.sleep(0.002)


@dataclass(slots=True)
class Recorder:
    """A handler that keeps what comes; `react` may be given to act on messages."""

    connection: Connection
    react: Callable[[Recorder, AnyMessage], None] | None = None
    messages: list[AnyMessage | Ack] = field(default_factory=list)
    data: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    raft: list[bytes] = field(default_factory=list)
    writable_calls: int = 0
    closed: list[Exception | None] = field(default_factory=list)

    def on_message(self, message: AnyMessage) -> None:
        """Keep it."""
        self.messages.append(message)
        if self.react is not None:
            self.react(self, message)

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Keep a copy."""
        self.data.append((handle, file, byte, bytes(data)))

    def on_raft(self, payload: memoryview) -> None:
        """Keep a copy."""
        self.raft.append(bytes(payload))

    def on_writable(self) -> None:
        """Count."""
        self.writable_calls += 1

    def on_closed(self, error: Exception | None) -> None:
        """Keep why."""
        self.closed.append(error)

    @property
    def error(self) -> Exception | None:
        """Why it was closed; only once it was."""
        [error] = self.closed
        return error


@dataclass(slots=True)
class Service:
    """A server of a node `n1`, and what has connected to it."""

    authority: Authority
    tls: ReloadingContext
    server: Server
    accepted: list[Recorder]
    make: Callable[[Connection], Recorder] | None = None
    """Makes the server's handlers instead of the recorder's."""
    fixed_address: Address | None = None
    """Where `connect` goes instead."""

    @property
    def address(self) -> Address:
        """Where clients connect to."""
        return self.fixed_address or Address("127.0.0.1", self.server.port)

    async def connect(
        self,
        files: TlsFiles | None = None,
        *,
        expected_identity: str | None = "samelog://node/n1",
        deadlines: Deadlines | None = None,
        make: Callable[[Connection], Recorder] = Recorder,
    ) -> Recorder:
        """A client of the product, as the publisher `p` unless told otherwise."""
        made: list[Recorder] = []

        def open_handler(connection: Connection) -> Recorder:
            made.append(make(connection))
            return made[0]

        await connect(
            self.address,
            ReloadingContext(files or self.authority.publisher("p")),
            open_handler,
            expected_identity=expected_identity,
            deadlines=deadlines or Deadlines(),
        )
        return made[0]

    async def pair(self) -> tuple[Recorder, Recorder]:
        """(client, server) of a connection on which both have said something."""
        before = len(self.accepted)
        client = await self.connect()
        client.connection.send(HELLO)
        await until(lambda: len(self.accepted) > before and self.accepted[before].messages)
        self.accepted[before].connection.send(HELLO)
        await until(lambda: client.messages)
        return client, self.accepted[before]


class ReservedForPeers(Descriptors):
    """No number is left that a client may have."""

    clients_below = 0
    peers_below = 1 << 20


@asynccontextmanager
async def serving(
    directory: Path,
    *,
    deadlines: Deadlines | None = None,
    limits: ConnectionLimits | None = None,
    react: Callable[[Recorder, AnyMessage], None] | None = None,
    files: Callable[[Authority, Path], TlsFiles] = lambda authority, _: authority.node("n1"),
) -> AsyncIterator[Service]:
    """A running server; on leaving, that everything it had is over is part of the test."""
    authority = Authority(directory)
    tls = ReloadingContext(files(authority, directory))
    service: Service

    def open_handler(connection: Connection) -> Recorder:
        if service.make is not None:
            return service.make(connection)
        service.accepted.append(Recorder(connection, react))
        return service.accepted[-1]

    server = await serve(
        Address("127.0.0.1", 0),
        tls,
        open_handler,
        limits=limits or ConnectionLimits(),
        deadlines=deadlines or Deadlines(),
    )
    service = Service(authority, tls, server, [])
    try:
        yield service
    finally:
        server.close()
        async with asyncio.timeout(PATIENCE_S):
            await server.wait_closed()
    assert server.connections == 0
    assert all(len(recorder.closed) == 1 for recorder in service.accepted)


@dataclass(slots=True)
class RawPeer:
    """A client that speaks TLS but may say anything."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def messages(self) -> list[AnyMessage]:
        """Everything the server says until it ends the connection."""
        async with asyncio.timeout(PATIENCE_S):
            data = await self.reader.read()
        decoder = FrameDecoder()
        decoder.feed(data)
        found: list[AnyMessage] = []
        while (frame := decoder.next()) is not None:
            found.append(decode_message(frame.payload))
        return found


@asynccontextmanager
async def raw_peer(service: Service) -> AsyncIterator[RawPeer]:
    """A TLS connection to the server with the certificate of the publisher `raw`."""
    context = client_context(service.authority.publisher("raw"))
    reader, writer = await open_raw(service.address, context)
    try:
        yield RawPeer(reader, writer)
    finally:
        writer.transport.abort()


async def open_raw(
    address: Address, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A stream connection with any context, or none."""
    return await asyncio.open_connection(address.host, address.port, ssl=context)


def bare_context(service: Service) -> ssl.SSLContext:
    """A client without a certificate, that knows the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(str(service.authority.ca_path))
    context.set_alpn_protocols([ALPN])
    return context


class Lines(logging.Handler):
    """Keeps the transport's log lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line."""
        self.lines.append(record.getMessage())
