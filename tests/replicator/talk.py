"""A client that says to a node whatever a test wants, over a real connection."""

from __future__ import annotations

from typing import TypeVar, cast

from samelog.replicator.handler import ReplicatorHandler
from samelog.runtime.errors import PeerFault
from samelog.runtime.network.channel import Channel
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.network.transport import Connection, connect
from samelog.wire.bounds import Ack
from samelog.wire.messages import (
    Acks,
    AnyMessage,
    CloseSession,
    ConnectionRole,
    Fault,
    Hello,
    OpenInput,
    OpenRun,
    OpenSession,
    SessionRefused,
    SessionStartsAt,
    Welcome,
)
from tests.replicator.fake_nodes import CLUSTER, FakeNode, World
from tests.runtime.peers import Recorder, until

M = TypeVar("M", bound=AnyMessage | Ack)

PUSH = Hello(ConnectionRole.PUSH, cluster=CLUSTER)
PULL = Hello(ConnectionRole.PULL, cluster=CLUSTER)


class Talk(Recorder):
    """Keeps what comes, and what a connection's Acks have for the session; helps to wait for it."""

    def all(self, kind: type[M]) -> list[M]:
        """The messages of one kind that have come."""
        return [message for message in self.messages if isinstance(message, kind)]

    async def next(self, kind: type[M], count: int = 1) -> M:
        """The `count`th message of a kind, when it is here. Raises what ended the connection."""
        await until(lambda: len(self.all(kind)) >= count or self.closed)
        found = self.all(kind)
        if len(found) < count:
            raise self.error or AssertionError("closed")
        return found[count - 1]

    async def open_input(self, run_id: str = "run-0", handle: int = 0) -> SessionStartsAt:
        """Open a run, and FLIGHTS in it."""
        self.connection.send(OpenRun(0, run_id))
        self.connection.send(OpenInput(handle, "flights", 0, run_id))
        return await self.next(SessionStartsAt)


class PushTalks(ReplicatorHandler):
    """A publisher's end of a connection, and what is said on the channels of its sessions."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.welcomed = False
        self.closed: list[Exception | None] = []

    def open(self, number: int = 1, session: str = "s", session_id: str = "id-1") -> Talk:
        """Ship a session on a channel of its own."""

        def close(channel: Channel, fault: Fault | None) -> None:
            self.connection.send(CloseSession(channel.number))

        channel = self.connection.open_channel(number, close)
        channel.handler = talk = Talk(cast(Connection, channel))
        self.connection.send(OpenSession(number, session, session_id))
        return talk

    def on_message(self, message: AnyMessage) -> None:
        """What is about sessions."""
        if isinstance(message, SessionRefused):
            channel = self.connection.channels[message.channel]
            channel.end(PeerFault(message.code, message.message, message.remedy))
        elif isinstance(message, Acks):
            for ack in message.acks:
                channel = self.connection.channels[ack.channel]
                cast(Talk, channel.handler).messages.append(ack)
        else:
            assert isinstance(message, Welcome)
            self.welcomed = True

    def on_closed(self, error: Exception | None) -> None:
        """Keep why."""
        self.closed.append(error)


async def push_talks(world: World, node: FakeNode, name: str = "p") -> PushTalks:
    """Connect as the publisher `name`, and say hello."""
    made: list[PushTalks] = []

    def open_handler(connection: Connection) -> PushTalks:
        made.append(PushTalks(connection))
        return made[0]

    tls = ReloadingContext(world.authority.publisher(name))
    connection = await connect(node.address, tls, open_handler, expected_identity=None)
    connection.send(PUSH)
    return made[0]


async def talk(world: World, node: FakeNode, hello: Hello, name: str = "p") -> Talk:
    """Connect as the publisher `name`, and say hello."""
    made: list[Talk] = []

    def open_handler(connection: Connection) -> Talk:
        made.append(Talk(connection))
        return made[0]

    tls = ReloadingContext(world.authority.publisher(name))
    connection = await connect(node.address, tls, open_handler, expected_identity=None)
    connection.send(hello)
    return made[0]
