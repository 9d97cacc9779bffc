"""Nodes for replicators: real sockets and TLS, real servers, a pretended cluster behind them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from samelog.config.authorisation import Rights
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.node import Grant
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address
from samelog.replicator.interfaces import RowSource
from samelog.replicator.pull.server import PullServer
from samelog.replicator.push.client import PushClient
from samelog.replicator.push.connections import PushConnections
from samelog.replicator.push.server import PushServer
from samelog.runtime.clock import SystemClock
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.network.transport import Connection, Handler, Server, serve
from samelog.store.disk.files import OsFileSystem
from samelog.wire.messages import AnyMessage, ConnectionRole, Hello, Welcome
from samelog.wire.pull.sender import READ_BYTES
from samelog.wire.sender import Sender
from tests.replicator.fake_intake import FakeCluster, FakeIntake
from tests.runtime.pki import Authority

CLUSTER = "fake"
POLL_S = 0.1
EVERYTHING = Grant(
    identity="samelog://publisher/*",
    publish_sessions=("*",),
    publish_topics=("*",),
    publish_dedup_ids=("*",),
    subscribe_topics=("*",),
)


class FakeNode:
    """One node."""

    def __init__(
        self,
        name: str,
        authority: Authority,
        cluster: FakeCluster,
        *,
        source: RowSource | None = None,
        grants: tuple[Grant, ...] = (EVERYTHING,),
    ) -> None:
        self.name = name
        self.intake = FakeIntake(cluster)
        self.source = source
        self.rights = Rights(grants, ["n0", "n1", "n2"])
        self.tls = ReloadingContext(authority.node(name))
        self.window_bytes = 16 << 20
        self.welcome_cluster = CLUSTER
        self.cluster_id = ""
        self.number: int | None = None
        """Its number in the cluster, which a Welcome tells."""
        self.servers: list[PushServer] = []
        self.connections: list[Connection] = []
        self.address = Address("127.0.0.1", 0)
        self._server: Server | None = None

    async def start(self) -> None:
        """Listen, at the same port as before if it was started before."""
        self._server = await serve(self.address, self.tls, self._accept)
        self.address = Address("127.0.0.1", self._server.port)

    async def stop(self) -> None:
        """End all connections, and listen no more."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    def _accept(self, connection: Connection) -> Handler:
        self.connections.append(connection)
        return _Dispatcher(self, connection)

    def handler(self, connection: Connection, hello: Hello) -> Handler:
        """Whoever answers from now on."""
        batch_bytes = (1 << 20) + (64 << 10)
        connection.send(
            Welcome(
                self.welcome_cluster,
                self.name,
                self.window_bytes,
                batch_bytes,
                cluster_id=self.cluster_id,
                number=self.number,
            )
        )
        if hello.role is ConnectionRole.PUSH:
            self.servers.append(PushServer(connection, hello, self.intake, self.rights))
            return self.servers[-1]
        if self.source is None:
            raise AssertionError("this node has no logs")
        sender = Sender(window_bytes=self.window_bytes, read_bytes=READ_BYTES)
        return PullServer(connection, self.source, self.rights, sender=sender)


class _Dispatcher:
    """Passes everything on, once there has been a Hello."""

    def __init__(self, node: FakeNode, connection: Connection) -> None:
        self._node = node
        self._connection = connection
        self._inner: Handler | None = None

    def on_message(self, message: AnyMessage) -> None:
        if self._inner is not None:
            self._inner.on_message(message)
        else:
            assert isinstance(message, Hello)
            self._inner = self._node.handler(self._connection, message)

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        assert self._inner is not None
        self._inner.on_data(handle, file, byte, data)

    def on_raft(self, payload: memoryview) -> None:
        assert self._inner is not None
        self._inner.on_raft(payload)

    def on_writable(self) -> None:
        if self._inner is not None:
            self._inner.on_writable()

    def on_closed(self, error: Exception | None) -> None:
        if self._inner is not None:
            self._inner.on_closed(error)


class World:
    """An authority, a pretended cluster, its nodes, and clients of them."""

    def __init__(self, path: Path, nodes: int, *, source: RowSource | None = None) -> None:
        self.path = path
        self.authority = Authority(path / "pki")
        self.cluster = FakeCluster()
        self.nodes = [
            FakeNode(f"n{number}", self.authority, self.cluster, source=source)
            for number in range(nodes)
        ]
        self.clients: list[PushClient] = []
        self.certificates: dict[str, TlsFiles] = {}
        self.connections = PushConnections(SystemClock(), random.Random(1), poll_s=POLL_S)

    def config(self, *, addresses: tuple[Address, ...] = (), name: str = "p") -> ClientConfig:
        """A client's configuration; the certificate of a name is issued once, because clients
        connect again when its files change.
        """
        if name not in self.certificates:
            self.certificates[name] = self.authority.publisher(name)
        return ClientConfig(
            nodes=addresses or tuple(node.address for node in self.nodes),
            cluster=CLUSTER,
            tls=self.certificates[name],
        )

    def push(
        self,
        path: Path,
        *,
        addresses: tuple[Address, ...] = (),
        name: str = "p",
        on_progress: Callable[[], None] = lambda: None,
        poll_s: float = POLL_S,
    ) -> PushClient:
        """A running push client of the session at `path`."""
        config = self.config(addresses=addresses, name=name)
        self.connections._poll_s = poll_s
        client = PushClient(
            str(path),
            config,
            connections=self.connections,
            tls=self.connections.context(config.tls),
            fs=OsFileSystem(),
            on_progress=on_progress,
        )
        client.start()
        self.clients.append(client)
        return client

    async def stop(self) -> None:
        """Everything."""
        for client in self.clients:
            await client.stop()
        await asyncio.gather(*(node.stop() for node in self.nodes))


@asynccontextmanager
async def world(
    path: Path, nodes: int = 1, *, source: RowSource | None = None
) -> AsyncIterator[World]:
    """A world whose nodes run."""
    made = World(path, nodes, source=source)
    for node in made.nodes:
        await node.start()
    try:
        yield made
    finally:
        await made.stop()
