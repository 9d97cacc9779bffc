"""TLS below a protocol of asyncio's: bytes both ways, clients that do not read, ends, refusals."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from samelog.runtime.network.tls import open_context
from samelog.runtime.network.tls_transport import TlsServing, TlsTransport
from tests.runtime.conftest import Kind
from tests.runtime.peers import in_loop, until
from tests.runtime.pki import Authority

LARGE = random.Random(7).randbytes(9 << 20)
HOST = "127.0.0.1"


class Echo(asyncio.Protocol):
    """Records what it is told; sends back what comes."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.received = b""
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.transport.writelines([data[:1], data[1:]])

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def eof_received(self) -> None:
        self.told.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append("lost")
        self.lost.append(exc)


class Side:
    """A server, and what became of its connections."""

    def __init__(self, authority: Authority) -> None:
        self.context = open_context(authority.node("n1"), ask_certificate=False)
        self.protocols: list[Echo] = []
        self.refused: list[tuple[str, str]] = []
        self.handshake_s = 20.0
        self.close_s = 20.0
        self.port = 0

    def open_protocol(self) -> Echo:
        self.protocols.append(Echo())
        return self.protocols[-1]

    def accept(self) -> TlsTransport:
        given = self.context, self.open_protocol, self.refuse, self.handshake_s, self.close_s
        return TlsTransport(TlsServing(*given))

    def refuse(self, host: str, reason: str) -> None:
        self.refused.append((host, reason))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.get_running_loop().create_server(self.accept, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for protocol in self.protocols:
                protocol.transport.abort()
            await until(lambda: all(each.lost for each in self.protocols))

    async def connect(
        self, context: ssl.SSLContext
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self.port, ssl=context, server_hostname="n1")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture
def side(authority: Authority, session_kind: Kind) -> Side:
    """A server of either kind of session."""
    return Side(authority)


@pytest.fixture
def trusting(authority: Authority) -> ssl.SSLContext:
    """What clients have."""
    context = ssl.create_default_context(cafile=str(authority.ca_path))
    context.check_hostname = False
    return context


def test_bytes_go_both_ways_whatever_their_number(side: Side, trusting: ssl.SSLContext) -> None:
    async def main() -> None:
        async with side.serving():
            reader, writer = await side.connect(trusting)
            for size in (1, 100, 8192, 16_384, 16_385, 70_000, 600_000):
                writer.write(LARGE[:size])
                assert await reader.readexactly(size) == LARGE[:size]
            writer.close()
            await until(lambda: side.protocols[0].lost)
        assert side.protocols[0].lost == [None]
        assert [told for told in side.protocols[0].told if told not in ("pause", "resume")] == [
            "made",
            "eof",
            "lost",
        ]

    in_loop(main)


def test_a_client_that_does_not_read_makes_the_protocol_pause_and_gets_all(
    side: Side, trusting: ssl.SSLContext
) -> None:
    async def main() -> None:
        async with side.serving():
            reader, writer = await side.connect(trusting)
            await until(lambda: side.protocols)
            protocol = side.protocols[0]
            protocol.transport.writelines([LARGE[:10], memoryview(LARGE)[10:], b"end"])
            assert protocol.told == ["made", "pause"]
            assert protocol.transport.get_write_buffer_size() > len(LARGE) // 4
            assert await reader.readexactly(len(LARGE)) == LARGE
            assert await reader.readexactly(3) == b"end"
            assert protocol.told == ["made", "pause", "resume"]
            assert protocol.transport.get_write_buffer_size() == 0
            writer.close()

    in_loop(main)


def test_what_waits_is_sent_before_the_end(side: Side, trusting: ssl.SSLContext) -> None:
    """And goodbye behind it, without which reading would fail."""

    def read_all() -> bytes:
        with (
            socket.create_connection((HOST, side.port)) as below,
            trusting.wrap_socket(
                below, server_hostname="n1", suppress_ragged_eofs=False
            ) as connection,
        ):
            return b"".join(iter(partial(connection.recv, 1 << 16), b""))

    async def main() -> None:
        async with side.serving():
            reading = asyncio.create_task(asyncio.to_thread(read_all))
            await until(lambda: side.protocols)
            protocol = side.protocols[0]
            protocol.transport.write(LARGE)
            protocol.transport.close()
            assert protocol.transport.is_closing()
            protocol.transport.write(b"too late")
            assert await reading == LARGE
            await until(lambda: protocol.lost)

    in_loop(main)


def test_a_client_that_never_reads_is_given_up(side: Side, trusting: ssl.SSLContext) -> None:
    side.close_s = 0.05

    async def main() -> None:
        async with side.serving():
            _, writer = await side.connect(trusting)
            await until(lambda: side.protocols)
            protocol = side.protocols[0]
            protocol.transport.write(LARGE * 4)
            protocol.transport.close()
            await until(lambda: protocol.lost)
            writer.transport.abort()

    in_loop(main)


def test_who_speaks_no_tls_is_refused_with_a_reason(side: Side) -> None:
    """Nothing is made for it."""

    async def main() -> None:
        async with side.serving():
            reader, writer = await asyncio.open_connection(HOST, side.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.read()
            writer.close()
        assert side.protocols == []
        assert [host for host, _ in side.refused] == [HOST]
        assert "HTTP_REQUEST" in side.refused[0][1]

    in_loop(main)


def test_who_does_not_finish_the_handshake_is_refused(side: Side) -> None:
    side.handshake_s = 0.05

    async def main() -> None:
        async with side.serving():
            reader, writer = await asyncio.open_connection(HOST, side.port)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        assert side.protocols == []
        assert side.refused == [(HOST, "the handshake was not done in time")]

    in_loop(main)


def test_a_damaged_record_ends_the_connection(side: Side, trusting: ssl.SSLContext) -> None:
    """The protocol hears why."""

    async def main() -> None:
        async with side.serving():
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = trusting.wrap_bio(incoming, outgoing, server_hostname="n1")
            reader, writer = await asyncio.open_connection(HOST, side.port)
            while not side.protocols:
                with contextlib.suppress(ssl.SSLWantReadError):
                    client.do_handshake()
                writer.write(outgoing.read())
                if client.version() is None or not side.protocols:
                    incoming.write(await reader.read(1 << 16))
            client.write(b"whole")
            damaged = bytearray(outgoing.read())
            damaged[-1] ^= 1
            writer.write(damaged)
            await until(lambda: side.protocols[0].lost)
            writer.close()
        assert side.protocols[0].received == b""
        assert isinstance(side.protocols[0].lost[0], ssl.SSLError)
        assert side.refused == []

    in_loop(main)


def test_reading_stops_and_goes_on(side: Side, trusting: ssl.SSLContext) -> None:
    async def main() -> None:
        async with side.serving():
            reader, writer = await side.connect(trusting)
            await until(lambda: side.protocols)
            transport = side.protocols[0].transport
            assert transport.is_reading()
            transport.pause_reading()
            assert not transport.is_reading()
            writer.write(b"later")
            await writer.drain()
            assert side.protocols[0].received == b""
            transport.resume_reading()
            assert await reader.readexactly(5) == b"later"
            assert transport.get_extra_info("ssl_object").version() == "TLSv1.3"
            writer.close()

    in_loop(main)
