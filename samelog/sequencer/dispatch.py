"""The first message of a connection decides what it is: who asks, whether they may, and who
answers.

Invariant: nothing but Hello is looked at before identity, cluster and rights are checked; deny is
the default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samelog.replicator.pull.server import PullServer
from samelog.replicator.push.server import PushServer
from samelog.runtime.network.transport import Connection, Handler
from samelog.sequencer.cluster.peers import PeerServer
from samelog.sequencer.state.commands import Member
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import PROTOCOL_VERSION, AnyMessage, Hello, Role, Welcome

if TYPE_CHECKING:
    from samelog.sequencer.node import Node

WINDOW_BYTES = 16 << 20


class Dispatcher:
    """Handles a new connection until its Hello. Implements transport.Handler."""

    def __init__(self, node: Node, connection: Connection) -> None:
        self._node = node
        self._connection = connection

    def on_message(self, message: AnyMessage) -> None:
        """The Hello decides on the handler; everything later is the handler's."""
        if not isinstance(message, Hello):
            raise _not_hello()
        self._check(message)
        self._connection.hand_over(self._handler(message))

    def _check(self, hello: Hello) -> None:
        if hello.version != PROTOCOL_VERSION:
            raise ProtocolFault(
                FaultCode.UNSUPPORTED_VERSION,
                f"protocol version {hello.version}, this node speaks {PROTOCOL_VERSION}",
            )
        cluster = self._node.config.cluster
        if hello.cluster and hello.cluster != cluster:
            raise ProtocolFault(
                FaultCode.WRONG_CLUSTER, f"this is cluster {cluster!r}, not {hello.cluster!r}"
            )

    def _handler(self, hello: Hello) -> Handler:
        match hello.role:
            case Role.RAFT:
                return self._peer(hello)
            case Role.PUSH:
                self._welcome()
                server = PushServer(self._connection, hello, self._node.intake, self._node.rights)
                return self._node.connections.pushing(server)
            case Role.PULL:
                self._welcome()
                reader = PullServer(self._connection, hello, self._node.source, self._node.rights)
                return self._node.connections.pulling(reader)

    def _peer(self, hello: Hello) -> Handler:
        name = hello.node or ""
        if str(self._connection.identity) != f"samelog://node/{name}":
            self._deny(f"speak for node {name}")
        member = self._node.members.named(name)
        if member is None or hello.number not in (None, member.number):
            self._connection.send(self._node.members.told())
            raise ProtocolFault(
                FaultCode.NOT_A_MEMBER,
                f"{name} is no member of this cluster, or not number {hello.number}",
                f"samelog node add {name} HOST:PORT",
            )
        if hello.number is None:
            return self._introduce(member)
        known = self._node.replica.machine.state.boots.get(name, 0)
        if hello.boot < known:
            raise ProtocolFault(
                FaultCode.STALE_BOOT,
                f"boot {hello.boot} of {name} is older than boot {known}",
                "this is an old copy of the node's directory: remove it and add the node anew",
            )
        self._welcome()
        self._node.peer_introduced(member.number, hello.boot)
        return PeerServer(member.number, self._connection, self._node)

    def _introduce(self, member: Member) -> Handler:
        """A node with an empty directory asks for its number: tell it, and who else is there."""
        self._connection.send(self._node.members.told())
        started = self._node.replica.machine.state.started
        self._welcome(is_fresh=member.number not in started)
        return Dispatcher(self._node, self._connection)

    def _deny(self, what: str) -> None:
        raise ProtocolFault(
            FaultCode.NOT_AUTHORISED,
            f"{self._connection.identity} may not {what}",
            "grant it in the node's configuration",
        )

    def _welcome(self, *, is_fresh: bool = False) -> None:
        self._connection.send(
            Welcome(
                cluster=self._node.config.cluster,
                node=self._node.config.name,
                window_bytes=WINDOW_BYTES,
                max_batch_bytes=self._node.batch_bytes,
                boot=self._node.directory.record.boot,
                number=self._node.number,
                is_fresh=is_fresh,
            )
        )

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Bytes of nobody knows whom."""
        raise _not_hello()

    def on_raft(self, payload: memoryview) -> None:
        """Raft messages of nobody knows whom."""
        raise _not_hello()

    def on_writable(self) -> None:
        """Nothing waits to be sent."""

    def on_closed(self, error: Exception | None) -> None:
        """Gone before it said anything."""


def _not_hello() -> ProtocolFault:
    return ProtocolFault(FaultCode.PROTOCOL, "the first message must be Hello")
