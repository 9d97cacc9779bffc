"""What the ends of replicator connections have in common.

Invariant: a frame that has no place in a conversation ends it with PROTOCOL.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Protocol

from samelog.runtime.faults import fault_of
from samelog.runtime.network.connection import EXPECTED_ERRORS
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import AnyMessage, Fault


class Line(Protocol):
    """What a conversation takes place on: a connection, or a channel of one."""

    def close(self, fault: Fault | None = None) -> None:
        """End it, and tell the peer why."""


class ReplicatorHandler:
    """The parts of runtime.transport.Handler that most handlers do nothing with."""

    def on_raft(self, payload: memoryview) -> None:
        """Raft has connections of its own."""
        raise ProtocolFault(FaultCode.PROTOCOL, "RAFT on a replicator's connection")

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """DATA, in the direction that has none."""
        raise ProtocolFault(FaultCode.PROTOCOL, "DATA in the wrong direction")

    def on_writable(self) -> None:
        """Nothing waits to be sent."""


def unexpected(message: AnyMessage) -> ProtocolFault:
    """The fault of a message that does not belong here."""
    return ProtocolFault(FaultCode.PROTOCOL, f"unexpected {type(message).__name__}")


def fail(connection: Line, error: Exception) -> None:
    """End a connection, or a channel, because of an error outside its callbacks, as one inside them
    would.
    """
    if not isinstance(error, EXPECTED_ERRORS):
        context = {"message": "a replicator's connection failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
    connection.close(fault_of(error))


class failing:  # noqa: N801 - reads as a statement; a generator would cost three times as much
    """What is raised inside ends the connection, and goes no further."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Line) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        fail(self._connection, error)
        return True
