"""A client that says to a node whatever a test wants, over a real connection."""

from __future__ import annotations

from typing import TypeVar

from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.network.transport import Connection, connect
from samelog.wire.messages import (
    AnyMessage,
    ConnectionRole,
    Hello,
    OpenInput,
    OpenRun,
    SessionStartsAt,
)
from tests.replicator.fake_nodes import CLUSTER, FakeNode, World
from tests.runtime.peers import Recorder, until

M = TypeVar("M", bound=AnyMessage)

PUSH = Hello(ConnectionRole.PUSH, cluster=CLUSTER, session="s", session_id="id-1")
PULL = Hello(ConnectionRole.PULL, cluster=CLUSTER)


class Talk(Recorder):
    """Keeps what comes; helps to wait for it."""

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
