"""Nodes that answer administrators as a test tells them to, over real TLS connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from samelog.config.pki.authority import CertificateRole, IssuedFiles, create_authority, issue
from samelog.config.schema.render import to_toml
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.network.transport import Connection, Server, serve
from samelog.wire.admin import AdminRequest, AdminResponse
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import AnyMessage, Hello, Request, Response, Welcome
from samelog.wire.messages import Role as HelloRole

CLUSTER = "fake"
Answer = AdminResponse | Exception | None
"""None: never answer. An exception ends the connection."""
ResultT = TypeVar("ResultT")


class FakeNode:
    """Answers Hello, then every request with `answer`. Implements transport.Handler."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[AdminRequest] = []
        self.hellos: list[Hello] = []
        self.answer: Callable[[AdminRequest], Answer] = lambda body: None
        self.address = Address("127.0.0.1", 1)

    def open(self, connection: Connection) -> _Conversation:
        """A new connection."""
        return _Conversation(self, connection)


class _Conversation:
    def __init__(self, node: FakeNode, connection: Connection) -> None:
        self._node = node
        self._connection = connection

    def on_message(self, message: AnyMessage) -> None:
        if isinstance(message, Hello):
            self._node.hellos.append(message)
            if message.role is not HelloRole.ADMIN or message.cluster != CLUSTER:
                raise ProtocolFault(FaultCode.WRONG_CLUSTER, "not this cluster")
            self._connection.send(Welcome(CLUSTER, self._node.name, 1 << 20, 1 << 20))
        elif isinstance(message, Request):
            self._answer(message)

    def _answer(self, request: Request) -> None:
        self._node.asked.append(request.body)
        answer = self._node.answer(request.body)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            self._connection.send(Response(request.id, answer))

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        raise ProtocolFault(FaultCode.PROTOCOL, "DATA")

    def on_raft(self, payload: memoryview) -> None:
        raise ProtocolFault(FaultCode.PROTOCOL, "RAFT")

    def on_writable(self) -> None:
        pass

    def on_closed(self, error: Exception | None) -> None:
        pass


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

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def __enter__(self) -> Self:
        self._thread.start()
        for node in self.nodes:
            files = self._files(issue(self._pki, CertificateRole.NODE, node.name))
            server = self._call(serve(Address("127.0.0.1", 0), ReloadingContext(files), node.open))
            node.address = Address("127.0.0.1", server.port)
            self._servers.append(server)
        Path(self.client_file).write_text(to_toml(self.config))
        return self

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
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
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
