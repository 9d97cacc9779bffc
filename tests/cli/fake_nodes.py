"""Nodes that answer administrators as a test tells them to, over real TLS connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from samelog.admin.answers import AdminAnswer
from samelog.admin.requests import AdminRequest
from samelog.admin.table import OPERATIONS, WhoMayAsk
from samelog.config.pki.authority import CertificateRole, IssuedFiles, create_authority, issue
from samelog.config.schema.render import to_toml
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address
from samelog.http.application import HttpApplication, HttpConnection
from samelog.http.routes import VALUES_FEW, HttpProblem, Route
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.network.transport import Connection, Handler, Server, serve
from samelog.wire.errors import FaultCode, ProtocolFault
from tests.patience import PATIENCE_S

CLUSTER = "fake"
Answer = AdminAnswer | Exception | None
"""None: never answer. HttpProblem: a refusal; any other exception cuts the connection."""
ResultT = TypeVar("ResultT")


class FakeNode:
    """Answers every request of the table with `answer`. Implements routes.HttpApi."""

    title, cluster = "a fake node", CLUSTER
    values_max = VALUES_FEW

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[AdminRequest[Any]] = []
        self.answer: Callable[[AdminRequest[Any]], Answer] = lambda request: None
        self.address = Address("127.0.0.1", 1)
        self.connections: list[asyncio.Protocol] = []
        self.routes = tuple(Route(operation, self._handle) for operation in OPERATIONS)
        self.application = HttpApplication(self, is_local=False)

    def may_read(self, identity: str) -> bool:
        return identity == "samelog://admin/test"

    def may_change(self, identity: str) -> bool:
        return self.may_read(identity)

    def is_admin(self, identity: str) -> bool:
        return self.may_change(identity)

    def may_send(self, who_may: WhoMayAsk, path: Mapping[str, str], identity: str) -> bool:
        return self.may_read(identity)

    def open(self) -> asyncio.Protocol:
        """A new connection's protocol."""
        self.connections.append(self.application.open())
        return self.connections[-1]

    async def _handle(self, request: AdminRequest[Any], identity: str) -> object:
        self.asked.append(request)
        answer = self.answer(request)
        if isinstance(answer, HttpProblem):
            raise answer
        if answer is not None and not isinstance(answer, Exception):
            return answer
        if isinstance(answer, Exception):
            for each in self.connections:
                if isinstance(each, HttpConnection):
                    each.force_close()
        await asyncio.Event().wait()
        return None


def no_replication(connection: Connection) -> Handler:
    raise ProtocolFault(FaultCode.PROTOCOL, "only administration is faked")


class FakeCluster:
    """Fake nodes on an event loop of their own; `directory` gets certificates and client.toml."""

    def __init__(self, directory: Path, count: int = 3) -> None:
        self.nodes = [FakeNode(f"n{number}") for number in range(count)]
        self.client_file = str(directory / "client.toml")
        self._pki = str(directory / "pki")
        self._ca = create_authority(self._pki, CLUSTER).cert
        self._own = issue(self._pki, CertificateRole.ADMIN, "test")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._servers: list[Server] = []

    def _files(self, issued: IssuedFiles) -> TlsFiles:
        return TlsFiles(ca=self._ca, cert=issued.cert, key=issued.key)

    def _call(self, work: Awaitable[ResultT]) -> ResultT:
        async def run() -> ResultT:
            return await work

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_S)

    def __enter__(self) -> Self:
        self._thread.start()
        for node in self.nodes:
            files = self._files(issue(self._pki, CertificateRole.NODE, node.name))
            server = self._call(self._serve(node, files))
            node.address = Address("127.0.0.1", server.port)
            self._servers.append(server)
        Path(self.client_file).write_text(to_toml(self.config))
        return self

    async def _serve(self, node: FakeNode, files: TlsFiles) -> Server:
        await node.application.start()
        tls, address = ReloadingContext(files), Address("127.0.0.1", 0)
        return await serve(
            address,
            tls,
            no_replication,
            open_http=node.open,
            is_admin=node.is_admin,
        )

    def stop(self, index: int) -> None:
        """Close a node's port and connections."""
        server = self._servers[index]
        self._loop.call_soon_threadsafe(server.close)
        self._call(server.wait_closed())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for index in range(len(self._servers)):
            self.stop(index)
            self._call(self.nodes[index].application.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    @property
    def config(self) -> ClientConfig:
        """How to reach the nodes."""
        return ClientConfig(
            nodes=tuple(node.address for node in self.nodes),
            node_names=tuple(node.name for node in self.nodes),
            cluster=CLUSTER,
            tls=self._files(self._own),
        )
