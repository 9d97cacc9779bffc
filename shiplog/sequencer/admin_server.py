"""The role ADMIN's side of a connection: requests come, answers go.

Invariant: every request gets exactly one answer; only so many are under way at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shiplog.runtime.transport import Connection
from shiplog.sequencer.admin_desk import AdminDesk
from shiplog.wire.errors import FaultCode, ProtocolFault
from shiplog.wire.messages import AnyMessage, Request, Response

if TYPE_CHECKING:
    from shiplog.sequencer.node import Node

REQUESTS_LIMIT = 16


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
        desk = AdminDesk(self._node)
        body = await desk.answer(str(self._connection.identity), request.body)
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
