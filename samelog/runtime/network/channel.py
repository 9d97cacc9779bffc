"""A channel: one of several conversations that share a connection.

Every frame names its channel. Channel 0 is the connection itself; its handler opens and closes the
others, and tells the peer so. What a channel's handler raises ends that channel only.

Invariant: a number is used once on a connection; the handler's `on_closed` is called exactly once,
and is the last call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from samelog.runtime.faults import fault_of
from samelog.runtime.network.tls import Identity
from samelog.wire.errors import ProtocolFault
from samelog.wire.messages import AnyMessage, Fault


class Handler(Protocol):
    """What a connection's user does with what comes, in the event loop; must not block it."""

    def on_message(self, message: AnyMessage) -> None:
        """A control message; Ping and Fault are the connection's own."""

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Record batches for a position; `data` is valid during the call only."""

    def on_raft(self, payload: memoryview) -> None:
        """A frame of consensus messages; `payload` is valid during the call only."""

    def on_writable(self) -> None:
        """`writable` is true again after it was not."""

    def on_closed(self, error: Exception | None) -> None:
        """The connection is over. None: this side closed it without a fault."""


class Carrier(Protocol):
    """What a channel needs of its connection."""

    identity: Identity
    writable: bool

    @property
    def channels(self) -> dict[int, Channel]:
        """The open channels, by number."""

    def send(self, message: AnyMessage, channel: int = 0) -> None:
        """Send a message on a channel."""

    def send_data(
        self, handle: int, file: int, byte: int, data: bytes | memoryview, channel: int = 0
    ) -> None:
        """Send whole record batches for a position on a channel."""

    def send_part(
        self, handle: int, file: int, byte: int, part: bytes | memoryview, channel: int = 0
    ) -> None:
        """Send a piece of a record batch on a channel."""

    def report(self, error: Exception) -> None:
        """Log an error that a handler raised."""


class Channel:
    """Made by `Connection.open_channel` only. It is sent on and closed as a connection is."""

    def __init__(
        self,
        connection: Carrier,
        number: int,
        on_end: Callable[[Channel, Fault | None], None],
    ) -> None:
        """`on_end` reports to the peer that this side ends the channel, and why. The owner sets
        `handler` before the next frame arrives.
        """
        self._connection = connection
        self.number = number
        self.is_open = True
        self._on_end = on_end
        self.handler: Handler | None = None

    @property
    def identity(self) -> str:
        """Who the peer is."""
        return str(self._connection.identity)

    @property
    def writable(self) -> bool:
        """Whether the connection takes more."""
        return self.is_open and self._connection.writable

    def send(self, message: AnyMessage) -> None:
        """Send a message. On a channel that is closed nothing happens."""
        if self.is_open:
            self._connection.send(message, self.number)

    def send_data(self, handle: int, file: int, byte: int, data: bytes | memoryview) -> None:
        """Send whole record batches for a position; `data` is free again on return."""
        if self.is_open:
            self._connection.send_data(handle, file, byte, data, self.number)

    def send_part(self, handle: int, file: int, byte: int, part: bytes | memoryview) -> None:
        """Send a piece of a batch."""
        if self.is_open:
            self._connection.send_part(handle, file, byte, part, self.number)

    def failed(self, error: Exception) -> None:
        """End the channel because its handler failed."""
        self._connection.report(error)
        self.close(fault_of(error))

    def close(self, fault: Fault | None = None) -> None:
        """End the channel, and tell the peer."""
        if self.is_open:
            self._on_end(self, fault)
            self.end(ProtocolFault(fault.code, fault.message, fault.remedy) if fault else None)

    def end(self, error: Exception | None) -> None:
        """The peer has ended the channel: tell the handler, after this call."""
        if self.is_open:
            self.is_open = False
            self._connection.channels.pop(self.number, None)
            asyncio.get_running_loop().call_soon(self._tell_closed, error)

    def connection_over(self, error: Exception | None) -> None:
        """Tell the handler at once that the connection is over."""
        if self.is_open:
            self.is_open = False
            self._tell_closed(error)

    def _tell_closed(self, error: Exception | None) -> None:
        """Make the last call of the handler, and let go of it: channel and handler, which know each
        other, would be left to the garbage collector, which frees thousands of them in one turn.
        """
        handler, self.handler = self.handler, None
        if handler is not None:
            handler.on_closed(error)
