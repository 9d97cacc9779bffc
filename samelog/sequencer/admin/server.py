"""The role ADMIN's side of a connection: requests come, answers go.

Invariant: every request gets exactly one answer; only so many are under way at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, get_args

from samelog.runtime.audit import UNKNOWN, note_change
from samelog.runtime.network.transport import Connection
from samelog.sequencer.admin.desk import AdminDesk
from samelog.wire import admin, admin_archive, admin_groups
from samelog.wire.admin_stage import StageRequest
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import AnyMessage, Request, Response

if TYPE_CHECKING:
    from samelog.sequencer.node import Node

REQUESTS_LIMIT = 16
ONLY_ASKED = (
    admin.ListTopics,
    admin.DescribeTopic,
    admin.GetStatus,
    admin_archive.PlanArchive,
    admin_archive.LogHistory,
    admin_groups.ListGroups,
    admin_groups.DescribeGroup,
    *get_args(StageRequest),
)
"""What changes nothing; and what publishers ask of their own records, many times a minute."""


class AdminServer:
    """One administrator's connection. Implements transport.Handler."""

    def __init__(self, node: Node, connection: Connection) -> None:
        self._node = node
        self._connection = connection
        self._tasks: set[asyncio.Task[None]] = set()

    def on_message(self, message: AnyMessage) -> None:
        """Answer a request, when its turn comes."""
        if not isinstance(message, Request):
            raise ProtocolFault(FaultCode.PROTOCOL, f"unexpected {type(message).__name__}")
        if len(self._tasks) >= REQUESTS_LIMIT:
            raise ProtocolFault(
                FaultCode.TOO_MANY, f"more than {REQUESTS_LIMIT} requests under way"
            )
        task = asyncio.create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: Request) -> None:
        who = str(self._connection.identity)
        problem: str | None = UNKNOWN
        try:
            body = await AdminDesk(self._node).answer(who, request.body)
            problem = _problem(body)
        finally:  # also if who asked has gone meanwhile
            if not isinstance(request.body, ONLY_ASKED):
                note_change(
                    who=who,
                    peer=self._connection.peername,
                    what=type(request.body).__name__,
                    asked=request.body,
                    error=problem,
                )
        self._connection.send(Response(request.id, body))

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Never sent on this connection."""
        raise ProtocolFault(FaultCode.PROTOCOL, "DATA on an administrator's connection")

    def on_raft(self, payload: memoryview) -> None:
        """Never sent on this connection."""
        raise ProtocolFault(FaultCode.PROTOCOL, "RAFT on an administrator's connection")

    def on_writable(self) -> None:
        """Answers are small."""

    def on_closed(self, error: Exception | None) -> None:
        """Nobody waits for the answers any more."""
        for task in self._tasks:
            task.cancel()


def _problem(answer: admin.AdminResponse) -> str | None:
    """Why nothing came of a request; None: something did."""
    if isinstance(answer, admin.NotLeader):
        return f"another node leads: {answer.node or 'none is known'}"
    return answer.message if isinstance(answer, admin.Failed) else None
