"""One direction of a simulated connection.

Invariant: pieces arrive in order, each some time after the one before it or at once with it; while
the way is cut or the receiver takes nothing, they wait.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cluster_sim.network import Transport


class Pipe:
    """What one end sends to the other."""

    def __init__(self, sender: Transport) -> None:
        self.high_bytes = 1 << 20
        self.low_bytes = 1 << 18
        self.is_ended = False
        self._sender = sender
        self._network = sender.network
        self._pieces: deque[tuple[float, bytes | None]] = deque()
        """(when it arrives, what; None: nothing more follows)."""
        self._bytes = 0
        self._last_arrival = 0.0
        self._is_scheduled = False
        self._is_full = False
        self._is_torn = False

    def send(self, data: bytes) -> None:
        """Put bytes on the way."""
        if self._is_torn:
            return
        if len(data) > 1 and self._network.chance.random() < self._network.split_chance:
            middle = self._network.chance.randrange(1, len(data))
            self._put(data[:middle])
            data = data[middle:]
        self._put(data)
        self._bytes += len(data)
        if self._bytes > self.high_bytes and not self._is_full:
            self._is_full = True
            self._sender.protocol.pause_writing()

    def end(self) -> None:
        """Nothing more follows."""
        if not self.is_ended:
            self.is_ended = True
            self._put(None)

    def _put(self, data: bytes | None) -> None:
        now = self._network.loop.time()
        arrival = max(self._last_arrival, now + self._network.delay())
        self._last_arrival = arrival
        self._pieces.append((arrival, data))
        self._schedule()

    def tear(self, chance: random.Random) -> None:
        """The connection breaks: only some of what is under way still arrives."""
        self._is_torn = True
        while self._pieces and chance.random() < 0.6:
            self._pieces.pop()
        if self._pieces and chance.random() < 0.5:
            arrival, data = self._pieces.pop()
            if data:
                self._pieces.append((arrival, data[: chance.randrange(len(data))] or None))

    def resume(self) -> None:
        """The way may be free again."""
        if not self._is_scheduled and self._pieces:
            self._schedule()

    def _schedule(self) -> None:
        if self._is_scheduled or not self._pieces:
            return
        self._is_scheduled = True
        receiver = self._sender.other
        delay = max(0.0, self._pieces[0][0] - self._network.loop.time())
        self._network.loop.call_in(receiver.process, delay, self._arrive)

    def _arrive(self) -> None:
        """In the receiver's process: hand over what is due."""
        self._is_scheduled = False
        receiver, network = self._sender.other, self._network
        way = (self._sender.process.host, receiver.process.host)
        if receiver.is_over or not hasattr(receiver, "protocol") or receiver.is_held:
            return
        if way in network.cuts:
            return
        now = network.loop.time()
        while self._pieces and self._pieces[0][0] <= now and not receiver.is_held:
            data = self._pieces.popleft()[1]
            if data is None:
                if not receiver.protocol.eof_received():
                    receiver.close()
            else:
                self._deliver(data)
            if receiver.is_over:
                return
        self._schedule()

    def _deliver(self, data: bytes) -> None:
        receiver = self._sender.other
        at = 0
        while at < len(data) and not receiver.is_over:
            room = memoryview(receiver.protocol.get_buffer(-1))
            size = min(len(room), len(data) - at)
            room[:size] = data[at : at + size]
            receiver.protocol.buffer_updated(size)
            at += size
        self._bytes -= len(data)
        if self._is_full and self._bytes < self.low_bytes:
            self._is_full = False
            loop = self._network.loop
            loop.call_in(self._sender.process, 0.0, self._sender.protocol.resume_writing)
