"""The publisher's end of a push connection: one to a node, for all sessions of a process that are
shipped there with the same credentials. Each session has a channel.

Invariant: what is wrong with a session ends its channel only; the connection ends with the last
session that uses it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from samelog.replicator.handler import ReplicatorHandler, unexpected
from samelog.replicator.push.conversation import PushConversation
from samelog.replicator.turns import Turns
from samelog.runtime.backoff import Backoff
from samelog.runtime.clock import Clock
from samelog.runtime.errors import PeerFault
from samelog.runtime.loop import spawn
from samelog.runtime.network.channel import Channel
from samelog.runtime.network.link import NodeAddress, NodeLink, OnOver
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.network.transport import Connection
from samelog.wire.bounds import MEMBERS_REACHED, Ack
from samelog.wire.messages import (
    Acks,
    AnyMessage,
    CloseSession,
    ConnectionRole,
    Fault,
    Hello,
    OpenSession,
    Reaches,
    SessionRefused,
    Welcome,
)
from samelog.wire.push.windows import CONNECTION_WINDOWS, SESSION_WINDOW_BYTES
from samelog.wire.sender import SharedWindow

OPENED_IN_TURN = 8
"""Sessions, before others have their turn."""


class SharingSession(Protocol):
    """A session that is shipped on a connection that others use, too."""

    def identity(self) -> tuple[str, str] | None:
        """(name, id) of the session, or None if it must not be opened now."""

    def open(self, channel: Channel, end: PublisherEnd) -> PushConversation:
        """Ship on this channel."""

    def changed(self) -> None:
        """The connection has come or gone."""


class PublisherEnd(ReplicatorHandler):
    """One connection. Implements transport.Handler."""

    def __init__(
        self,
        connection: Connection,
        cluster: str,
        sessions: dict[SharingSession, None],
        clock: Clock,
        on_over: OnOver,
        *,
        on_welcome: Callable[[], None],
    ) -> None:
        """`sessions`: all sessions to open; kept up to date by the caller."""
        self.turns = Turns(connection, clock)
        self.window = SharedWindow(CONNECTION_WINDOWS * SESSION_WINDOW_BYTES)
        self._connection = connection
        self._channels = connection.channels
        self._sessions = sessions
        self._on_over = on_over
        self._on_welcome = on_welcome
        self._welcome: Welcome | None = None
        self._reached: frozenset[int] = frozenset()
        """What the node was told of it."""
        self._numbers = itertools.count(1)
        self._to_open: deque[SharingSession] = deque()
        connection.send(Hello(ConnectionRole.PUSH, cluster=cluster, roams=True, refusals=True))

    @property
    def is_open(self) -> bool:
        """Whether the node has answered, and the connection is not over."""
        return self._welcome is not None and self._connection.is_open

    @property
    def member(self) -> int | None:
        """The node's number, or None while it is not connected."""
        return self._welcome.number if self._welcome is not None and self.is_open else None

    def tell_reached(self, members: frozenset[int]) -> None:
        """Tell the node which members this process reaches, if that is news."""
        if self.is_open and members != self._reached:
            self._reached = members
            self._connection.send(Reaches(tuple(sorted(members)[:MEMBERS_REACHED])))

    def open(self, session: SharingSession) -> None:
        """Open a session when it is its turn."""
        if self.is_open:
            self._to_open.append(session)
            if len(self._to_open) == 1:
                asyncio.get_running_loop().call_soon(self._open_some)

    def _open_some(self) -> None:
        self._connection.cork()
        for _ in range(OPENED_IN_TURN):
            if self._to_open and self.is_open:
                self._open(self._to_open.popleft())
        self._connection.uncork()
        if self._to_open and self.is_open:
            asyncio.get_running_loop().call_soon(self._open_some)

    def _open(self, session: SharingSession) -> None:
        identity = session.identity()
        if identity is None or session not in self._sessions or self._welcome is None:
            return
        number = next(self._numbers)
        channel = self._connection.open_channel(number, self._close)
        self._connection.send(OpenSession(number, *identity))
        try:
            channel.handler = conversation = session.open(channel, self)
            conversation.on_message(self._welcome)
        except Exception as error:  # noqa: BLE001 - the seam: it ends the session
            channel.failed(error)

    def _close(self, channel: Channel, fault: Fault | None) -> None:
        """Tell the node that this side ends a session."""
        self._connection.send(CloseSession(channel.number))

    # --- from the connection ------------------------------------------------------------------

    def on_message(self, message: AnyMessage) -> None:
        """What is about the connection and its sessions; all else comes on their channels."""
        match message:
            case Welcome() if self._welcome is None:
                self._welcome = message
                for session in tuple(self._sessions):
                    self.open(session)
                self._on_welcome()
            case Acks(acks):
                self._pass_on(acks)
            case SessionRefused(channel=number):
                channel = self._channels.get(number)
                if channel is not None:
                    channel.end(PeerFault(message.code, message.message, message.remedy))
            case _:
                raise unexpected(message)

    def _pass_on(self, acks: Sequence[Ack]) -> None:
        """Tell the sessions how far they are; an error ends that session only."""
        for ack in acks:
            number = ack.channel
            channel = self._channels.get(number) or self._connection.find_channel(number)
            if channel is not None and isinstance(channel.handler, PushConversation):
                try:
                    channel.handler.on_ack(ack)
                except Exception as error:  # noqa: BLE001 - the seam: it ends the session
                    channel.failed(error)

    def on_writable(self) -> None:
        """Go on sending."""
        self.turns.go_on()

    def on_closed(self, error: Exception | None) -> None:
        """Gone; it is dialled again."""
        self._to_open.clear()
        self._on_over(error)


class NodeConnection:
    """The connection to one node, kept up as long as sessions use it."""

    def __init__(
        self,
        target: NodeAddress,
        cluster: str,
        *,
        tls: ReloadingContext,
        backoff: Backoff,
        clock: Clock,
        on_reach: Callable[[], None],
    ) -> None:
        """`on_reach` is called when `member` has changed."""
        self.sessions: dict[SharingSession, None] = {}
        self._cluster = cluster
        self._clock = clock
        self._end: PublisherEnd | None = None
        self._on_reach = on_reach
        says = "not shipping to a node"
        self._link = NodeLink(self._open, tls=tls, backoff=backoff, clock=clock, says=says)
        dialling = self._link.keep_up(lambda: target, self._ended)
        self.task = spawn(dialling, f"push to {target.address}")

    @property
    def last_error(self) -> str | None:
        """Why there is no connection, or why the one before ended."""
        return self._link.last_error

    @property
    def is_up(self) -> bool:
        """Whether there is a connection."""
        return self._end is not None and self._end.is_open

    @property
    def member(self) -> int | None:
        """The node's number, or None while it is not connected."""
        return None if self._end is None else self._end.member

    def tell_reached(self, members: frozenset[int]) -> None:
        """Tell the node, if there is a connection, which members this process reaches."""
        if self._end is not None:
            self._end.tell_reached(members)

    def join(self, session: SharingSession) -> None:
        """Ship a session on the connection, whenever there is one."""
        self.sessions[session] = None
        if self._end is not None:
            self._end.open(session)

    def leave(self, session: SharingSession) -> None:
        """Ship a session no more."""
        self.sessions.pop(session, None)

    def connect_again(self) -> None:
        """Replace the connection, if there is one; all sessions are opened on the new one."""
        if self._link.connection is not None:
            self._link.connection.close()

    def _open(self, connection: Connection, on_over: OnOver) -> PublisherEnd:
        self._end = PublisherEnd(
            connection,
            self._cluster,
            self.sessions,
            self._clock,
            on_over,
            on_welcome=self._on_reach,
        )
        return self._end

    def _ended(self, error: Exception | None) -> None:
        self._end = None
        self._on_reach()
        for session in tuple(self.sessions):
            session.changed()
