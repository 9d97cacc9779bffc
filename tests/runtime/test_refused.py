"""Who is not let in: the matrix of identities, and what each side is told."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop
from cryptography.x509.oid import ExtendedKeyUsageOID

from samelog.config.tables.node import ConnectionLimits
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address
from samelog.runtime.errors import ConnectFault, ConnectionLost, ConnectProblem, PeerFault
from samelog.runtime.network import transport
from samelog.runtime.network.connection import Connection
from samelog.runtime.network.peer_watch import Deadlines
from samelog.runtime.network.tls import client_context
from samelog.runtime.network.transport import log
from samelog.wire.errors import FaultCode
from tests.patience import PATIENCE_S
from tests.runtime.peers import (
    HELLO,
    Lines,
    Recorder,
    ReservedForPeers,
    Service,
    bare_context,
    in_loop,
    open_raw,
    serving,
    until,
)
from tests.runtime.pki import EXPIRED, FUTURE, Authority

pytestmark = pytest.mark.usefixtures("session_kind")

FilesOf = Callable[[Authority, Path], TlsFiles]

PUBLISHER = "samelog://publisher/p"
SERVER_ONLY = (ExtendedKeyUsageOID.SERVER_AUTH,)
CLIENT_ONLY = (ExtendedKeyUsageOID.CLIENT_AUTH,)


def with_ca_of(other: TlsFiles, files: TlsFiles) -> TlsFiles:
    return TlsFiles(ca=other.ca, cert=files.cert, key=files.key)


def of_another_authority(authority: Authority, directory: Path) -> TlsFiles:
    """Trusts ours, is signed by another one."""
    stranger = Authority(directory / "stranger", "stranger").publisher("p")
    return with_ca_of(authority.publisher("p"), stranger)


def of_a_namesake_authority(authority: Authority, directory: Path) -> TlsFiles:
    """The other authority even has the same name."""
    stranger = Authority(directory / "namesake").publisher("p")
    return with_ca_of(authority.publisher("p"), stranger)


REFUSED_CLIENTS: dict[str, tuple[FilesOf, ConnectProblem]] = {
    "wrong authority": (of_another_authority, ConnectProblem.UNTRUSTED),
    "namesake of the authority": (of_a_namesake_authority, ConnectProblem.UNTRUSTED),
    "expired": (lambda a, _: a.issue("x", PUBLISHER, lifetime=EXPIRED), ConnectProblem.EXPIRED),
    "not yet valid": (
        lambda a, _: a.issue("x", PUBLISHER, lifetime=FUTURE),
        ConnectProblem.EXPIRED,
    ),
    "for servers only": (
        lambda a, _: a.issue("x", PUBLISHER, usages=SERVER_ONLY),
        ConnectProblem.WRONG_PURPOSE,
    ),
}

NAMELESS_CLIENTS: dict[str, FilesOf] = {
    "common name only": lambda a, _: a.issue("x"),
    "foreign URI only": lambda a, _: a.issue("x", "spiffe://demo/publisher/p"),
    "URI without name": lambda a, _: a.issue("x", "samelog://publisher/"),
    "URI with path": lambda a, _: a.issue("x", "samelog://publisher/../p"),
    "URI with capitals": lambda a, _: a.issue("x", "samelog://publisher/P"),
    "URI of another form": lambda a, _: a.issue("x", "samelog:publisher/p"),
    "wildcard DNS name": lambda a, _: a.issue("x", "dns:*.example.org"),
    "no key usage": lambda a, _: a.issue("x", PUBLISHER, usages=()),
}


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


@pytest.mark.parametrize(("files", "problem"), REFUSED_CLIENTS.values(), ids=REFUSED_CLIENTS.keys())
def test_clients_that_the_handshake_refuses(
    tmp_path: Path, lines: Lines, files: FilesOf, problem: ConnectProblem
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            client = await service.connect(files(service.authority, tmp_path))
            client.connection.send(HELLO)
            await until(lambda: client.closed and lines.lines)
            assert isinstance(client.error, ConnectFault)
            assert client.error.problem is ConnectProblem.REFUSED_BY_PEER
            assert client.error.remedy
            assert service.accepted == []
            await service.pair()

    in_loop(main)
    [line] = lines.lines
    assert line.startswith('connection refused peer="127.0.0.1:')
    assert f'problem="{problem.value}"' in line
    assert "remedy=" in line


@pytest.mark.parametrize("files", NAMELESS_CLIENTS.values(), ids=NAMELESS_CLIENTS.keys())
def test_clients_without_a_usable_identity(tmp_path: Path, lines: Lines, files: FilesOf) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            client = await service.connect(files(service.authority, tmp_path))
            client.connection.send(HELLO)
            await until(lambda: client.closed and lines.lines)
            assert isinstance(client.error, PeerFault)
            assert client.error.code is FaultCode.NOT_AUTHORISED
            assert client.error.remedy
            assert service.accepted == []

    in_loop(main)
    assert len(lines.lines) == 1


def no_certificate(service: Service) -> ssl.SSLContext:
    return bare_context(service)


def tls_1_2(service: Service) -> ssl.SSLContext:
    context = client_context(service.authority.publisher("p"))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def no_alpn(service: Service) -> ssl.SSLContext:
    files = service.authority.publisher("p")
    context = bare_context(service)
    context.load_cert_chain(files.cert, files.key)
    return context


def other_alpn(service: Service) -> ssl.SSLContext:
    context = no_alpn(service)
    context.set_alpn_protocols(["h2"])
    return context


@pytest.mark.parametrize(
    ("context_of", "problem"),
    [
        (no_certificate, ConnectProblem.NO_CERTIFICATE),
        (tls_1_2, ConnectProblem.TLS_VERSION),
        (other_alpn, ConnectProblem.WRONG_PROTOCOL),
    ],
)
def test_other_clients(
    tmp_path: Path,
    lines: Lines,
    context_of: Callable[[Service], ssl.SSLContext],
    problem: ConnectProblem,
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            with pytest.raises((OSError, ssl.SSLError, asyncio.IncompleteReadError)):  # noqa: PT012
                reader, writer = await open_raw(service.address, context_of(service))
                writer.write(b"x")
                async with asyncio.timeout(PATIENCE_S):
                    await reader.readexactly(1 << 20)
            await until(lambda: lines.lines)
            assert service.accepted == []

    in_loop(main)
    assert f'problem="{problem.value}"' in lines.lines[0]


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, b"\x16\x03\x01\xff\xff" + b"\0" * 99],
    ids=["http", "zeros", "half a hello"],
)
def test_plaintext_is_refused_and_never_taken_for_data(
    tmp_path: Path, lines: Lines, said: bytes
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            reader, writer = await open_raw(service.address, None)
            writer.write(said)
            async with asyncio.timeout(PATIENCE_S):
                answer = await reader.read()
            assert len(answer) <= 7, "no more than an alert"
            writer.transport.abort()
            await until(lambda: lines.lines)
            assert service.accepted == []

    in_loop(main)
    assert "connection refused" in lines.lines[0]


BAD_NODES: dict[str, tuple[FilesOf, str | None, ConnectProblem]] = {
    "wrong authority": (
        lambda a, d: with_ca_of(a.node("n1"), Authority(d / "other").node("n1")),
        None,
        ConnectProblem.UNTRUSTED,
    ),
    "expired": (
        lambda a, _: a.issue("x", "samelog://node/n1", lifetime=EXPIRED),
        None,
        ConnectProblem.EXPIRED,
    ),
    "another node": (
        lambda a, _: a.node("n2"),
        "samelog://node/n1",
        ConnectProblem.WRONG_IDENTITY,
    ),
    "a publisher posing as a node": (
        lambda a, _: a.publisher("p"),
        None,
        ConnectProblem.WRONG_IDENTITY,
    ),
    "a host name instead of a node's": (
        lambda a, _: a.issue("x", "dns:localhost"),
        None,
        ConnectProblem.WRONG_IDENTITY,
    ),
    "for clients only": (
        lambda a, _: a.issue("x", "samelog://node/n1", usages=CLIENT_ONLY),
        None,
        ConnectProblem.WRONG_PURPOSE,
    ),
    "no key usage": (
        lambda a, _: a.issue("x", "samelog://node/n1", usages=()),
        None,
        ConnectProblem.WRONG_PURPOSE,
    ),
    "common name only": (lambda a, _: a.issue("n1"), None, ConnectProblem.NO_IDENTITY),
}


@pytest.mark.parametrize(("files", "expected", "problem"), BAD_NODES.values(), ids=BAD_NODES.keys())
def test_nodes_that_a_client_refuses(
    tmp_path: Path, files: FilesOf, expected: str | None, problem: ConnectProblem
) -> None:
    async def main() -> None:
        async with serving(tmp_path, files=files) as service:
            with pytest.raises(ConnectFault) as caught:
                await service.connect(expected_identity=expected)
            assert caught.value.problem is problem
            assert caught.value.remedy
            assert caught.value.peer == str(service.address)

    in_loop(main)


def test_nobody_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            address = service.address
            files = service.authority.publisher("p")
        gone = Service(service.authority, service.tls, service.server, [])
        gone.fixed_address = address
        with pytest.raises(ConnectFault) as caught:
            await gone.connect(files)
        assert caught.value.problem is ConnectProblem.UNREACHABLE
        gone.fixed_address = Address("no.such.host.invalid", 1)
        with pytest.raises(ConnectFault) as caught:
            await gone.connect(files)
        assert caught.value.problem is ConnectProblem.UNREACHABLE

    in_loop(main)


def test_a_plaintext_server(tmp_path: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org ESMTP\r\n")
        await reader.read()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        async with serving(tmp_path) as service:
            service.fixed_address = Address(*server.sockets[0].getsockname()[:2])
            with pytest.raises(ConnectFault) as caught:
                await service.connect()
            assert caught.value.problem is ConnectProblem.NOT_TLS
        server.close()

    in_loop(main)


def test_what_the_factory_raises_reaches_connect_or_the_peer(tmp_path: Path) -> None:
    def refuse(recorder: object) -> Recorder:
        raise LookupError("not today")

    async def main() -> None:
        async with serving(tmp_path) as service:
            with pytest.raises(LookupError):
                await service.connect(make=refuse)
            service.make = refuse
            client = await service.connect()
            await until(lambda: client.closed)
            assert isinstance(client.error, PeerFault)
            assert client.error.code is FaultCode.INTERNAL

    in_loop(main)


def test_an_identity_has_so_many_connections(tmp_path: Path) -> None:
    limits = ConnectionLimits(connections_per_identity=2)

    async def main() -> None:
        async with serving(tmp_path, limits=limits) as service:
            first, _ = await service.pair()
            await service.pair()
            third = await service.connect()
            await until(lambda: third.closed)
            assert isinstance(third.error, PeerFault)
            assert third.error.code is FaultCode.TOO_MANY
            assert "limits.connections_per_identity" in str(third.error)
            other = await service.connect(service.authority.publisher("other"))
            first.connection.close()
            await until(lambda: service.server.connections == 2)
            await service.pair()
            assert other.connection.is_open
            service.server.limits = ConnectionLimits(connections_per_identity=3)
            await service.pair()

    in_loop(main)


def test_a_server_has_so_many_connections(tmp_path: Path, lines: Lines) -> None:
    limits = ConnectionLimits(connections=2)

    async def main() -> None:
        async with serving(tmp_path, limits=limits) as service:
            await service.pair()
            await service.pair()
            with pytest.raises(ConnectFault):
                await service.connect()
            await until(lambda: lines.lines)

    in_loop(main)
    assert 'problem="too many connections"' in lines.lines[0]
    assert "limits.connections in" in lines.lines[0]


def test_a_host_has_so_many_handshakes(tmp_path: Path, lines: Lines) -> None:
    limits = ConnectionLimits(handshakes_per_host=2)

    async def main() -> None:
        async with serving(tmp_path, limits=limits) as service:
            writers = [(await open_raw(service.address, None))[1] for _ in range(2)]
            await until(lambda: service.server.connections == 2)
            with pytest.raises(ConnectFault):
                await service.connect()
            for writer in writers:
                writer.transport.abort()
            await until(lambda: service.server.connections == 0)
            await service.pair()

    in_loop(main)
    assert "limits.handshakes_per_host" in lines.lines[0]


def test_a_flood_of_refusals_fills_no_log(tmp_path: Path, lines: Lines) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            for _ in range(50):
                _, writer = await open_raw(service.address, None)
                writer.write(b"nonsense\n")
                await until(lambda: service.server.connections == 1)
                writer.transport.abort()
                await until(lambda: service.server.connections == 0)

    in_loop(main)
    assert len(lines.lines) == 10


def test_a_cancelled_connect_leaves_nothing_behind(tmp_path: Path) -> None:
    arrived, ended = asyncio.Event(), asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await reader.read()
        writer.close()
        ended.set()

    async def main() -> None:
        listener = await asyncio.start_server(never_answer, "127.0.0.1", 0)
        async with serving(tmp_path) as service:
            service.fixed_address = Address(*listener.sockets[0].getsockname()[:2])
            task = asyncio.create_task(service.connect())
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await ended.wait()
        listener.close()

    in_loop(main)


@pytest.mark.parametrize("turns", range(4))
def test_a_connect_that_is_cancelled_after_some_turns_leaves_nothing_behind(
    tmp_path: Path, turns: int
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            task = asyncio.create_task(service.connect())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            outcome = (await asyncio.gather(task, return_exceptions=True))[0]
            assert isinstance(outcome, asyncio.CancelledError), outcome

    in_loop(main)


def test_a_connect_that_is_cancelled_when_all_is_open_leaves_nothing_behind(tmp_path: Path) -> None:
    made: list[Connection] = []

    async def main() -> None:
        async with serving(tmp_path) as service:

            def cancel(connection: Connection) -> Recorder:
                made.append(connection)
                asyncio.get_running_loop().call_soon(task.cancel)  # before `connect` goes on
                return Recorder(connection)

            task = asyncio.create_task(service.connect(make=cancel))
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not made[0].is_open
            await until(lambda: service.server.connections == 0)

    in_loop(main)


def test_renewed_files_are_used_for_new_connections(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            old, _ = await service.pair()
            service.authority.issue("node-n1", "samelog://node/renewed")
            assert service.tls.reload_if_changed()
            new = await service.connect(expected_identity="samelog://node/renewed")
            assert new.connection.is_open
            assert old.connection.is_open
            assert old.connection.identity == "samelog://node/n1"

    in_loop(main)


def test_closing_the_server_ends_its_connections(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            client, server = await service.pair()
            service.server.close()
            await service.server.wait_closed()
            assert server.closed == [None]
            await until(lambda: client.closed)
            assert isinstance(client.error, ConnectionLost)
            with pytest.raises(RuntimeError):
                _ = service.server.port

    in_loop(main)


@pytest.mark.parametrize("turns", range(5))
def test_who_is_accepted_while_the_server_closes_is_turned_away(tmp_path: Path, turns: int) -> None:
    patient = Deadlines(handshake_s=2 * PATIENCE_S)

    async def main() -> None:
        async with serving(tmp_path, deadlines=patient) as service:
            with socket.create_connection(("127.0.0.1", service.server.port)) as client:
                client.setblocking(False)
                for _ in range(turns):
                    await asyncio.sleep(0)
                service.server.close()
                with suppress(ConnectionResetError):
                    async with asyncio.timeout(PATIENCE_S):
                        while await asyncio.get_running_loop().sock_recv(client, 64):
                            pass

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_clients_leave_the_last_descriptors_to_nodes_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            await service.pair()
            monkeypatch.setattr(transport, "descriptors", lambda: ReservedForPeers(256))
            client = await service.connect()
            await until(lambda: client.closed)
            assert isinstance(client.error, PeerFault)
            assert client.error.code is FaultCode.TOO_MANY
            assert "reserved for files" in str(client.error)
            peer = await service.connect(service.authority.node("n2"))
            peer.connection.send(HELLO)
            await until(lambda: service.accepted[-1].messages)
            assert peer.connection.is_open

    in_loop(main)
