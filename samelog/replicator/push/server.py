"""The node's end of a push connection: it has a channel for each session that is shipped on it.

Invariant: a fault of a session ends that session only; rights are checked for each session.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from samelog.config.authorisation import Rights
from samelog.replicator.handler import ReplicatorHandler, unexpected
from samelog.replicator.interfaces import SessionIntake
from samelog.replicator.push.ack_sender import AckSender
from samelog.replicator.push.served_session import PushSession
from samelog.runtime.faults import make_fault
from samelog.runtime.network.channel import Channel
from samelog.runtime.network.transport import Connection
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import (
    AnyMessage,
    CloseSession,
    Fault,
    Hello,
    OpenSession,
    Reaches,
    SessionRefused,
)
from samelog.wire.push.windows import CONNECTION_WINDOWS, SESSION_WINDOW_BYTES

MAX_SESSIONS = 1 << 15
KEPT_BYTES = CONNECTION_WINDOWS * SESSION_WINDOW_BYTES
"""Kept for sessions that have to wait, before the connection has to wait."""


class PushServer(ReplicatorHandler):
    """One push connection. Implements transport.Handler and served_session.SharedConnection."""

    def __init__(
        self,
        connection: Connection,
        hello: Hello,
        intake: SessionIntake,
        rights: Rights,
        *,
        sessions: dict[PushSession, None] | None = None,
        on_over: Callable[[PushServer], None] = lambda server: None,
        on_holds: Callable[[PushSession], None] = lambda session: None,
    ) -> None:
        """`sessions`: those of all connections, kept up to date, the oldest first. `on_holds`: a
        publisher holds something else now.
        """
        self.acks = AckSender(connection)
        self._connection = connection
        self._hello = hello
        self._intake = intake
        self._rights = rights
        self._sessions = {} if sessions is None else sessions
        self._on_over = on_over
        self._on_holds = on_holds
        self._loop = asyncio.get_running_loop()
        self._turns: deque[Callable[[], None]] = deque()
        self._kept_bytes = 0
        self._is_paused = False

    # --- from the connection ------------------------------------------------------------------

    def on_message(self, message: AnyMessage) -> None:
        """What is about sessions; all else comes on their channels."""
        match message:
            case OpenSession():
                self._open(message)
            case CloseSession(channel=number):
                channel = self._connection.channels.get(number)
                if channel is not None:
                    channel.end(None)
            case Reaches(members):
                self.acks.reached = frozenset(members)
            case _:
                raise unexpected(message)

    def on_closed(self, error: Exception | None) -> None:
        """The connection is over, and so are all its sessions."""
        self._turns.clear()
        self.acks.close()
        self._on_over(self)

    def _open(self, message: OpenSession) -> None:
        channel = self._connection.open_channel(message.channel, self._refuse)
        try:
            if len(self._connection.channels) > MAX_SESSIONS:
                text = f"more than {MAX_SESSIONS} sessions on one connection"
                raise ProtocolFault(FaultCode.TOO_MANY, text, "ship some from another process")
            session = PushSession(
                channel, message, self._hello, self._intake, self._rights, shared=self
            )
        except Exception as error:  # noqa: BLE001 - the seam: it ends the session
            channel.failed(error)
        else:
            channel.handler = session
            self._sessions[session] = None

    def _refuse(self, channel: Channel, fault: Fault | None) -> None:
        """Tell the client that this side ends a session."""
        why = fault or make_fault(FaultCode.NOT_READY, "the node ends the session", "retry")
        refused = SessionRefused(channel.number, why.code, why.message, why.remedy)
        self._connection.send(refused)

    # --- from the sessions --------------------------------------------------------------------

    def in_turn(self, work: Callable[[], None]) -> None:
        """Call `work` when it is its turn: one call in each turn of the event loop."""
        self._turns.append(work)
        if len(self._turns) == 1:
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if self._turns:
            work = self._turns.popleft()
            if self._turns:
                self._loop.call_soon(self._next_turn)
            work()

    def kept(self, size_bytes: int) -> None:
        """A session keeps so many bytes more: the connection waits while all keep too many."""
        self._kept_bytes += size_bytes
        is_paused = self._kept_bytes > KEPT_BYTES
        if is_paused != self._is_paused:
            self._is_paused = is_paused
            (self._connection.pause_reading if is_paused else self._connection.resume_reading)()

    def session_over(self, session: PushSession) -> None:
        """A session has ended."""
        self._sessions.pop(session, None)

    def holds_changed(self, session: PushSession) -> None:
        """The publisher of a session holds something else now."""
        self._on_holds(session)
