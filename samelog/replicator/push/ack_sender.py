"""Sends the acknowledgements of a push connection when `samelog.wire.push.acks` wants them sent.

Invariant: this driver decides nothing; one timer serves all sessions of the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from samelog.runtime.network.transport import Connection
from samelog.wire.push.acks import Acknowledgements


class AckSender:
    """Of one connection."""

    def __init__(self, connection: Connection) -> None:
        self.acks = Acknowledgements()
        self.reached: Collection[int] = ()
        """The members to which the publisher's process has connections, by its own word."""
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None

    def schedule(self) -> None:
        """Send at another time: `acks.due_at` has changed."""
        due_at = self.acks.due_at
        if due_at is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        if due_at > self._loop.time():
            self._timer = self._loop.call_at(due_at, self._send)
        else:
            self._timer = self._loop.call_soon(self._send)

    def send_channel(self, channel: int) -> None:
        """Send at once what there is to tell on a channel."""
        for message in self.acks.take_channel(channel):
            self._connection.send(message)

    def close(self) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()

    def _send(self) -> None:
        self._timer = None
        for message in self.acks.take(self._loop.time()):
            self._connection.send(message)
