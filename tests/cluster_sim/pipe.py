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
        arrival = self._network.loop.time() + self._network.delay()
        arrival = max(arrival, self._last_arrival)
        self._last_arrival = arrival
        self._pieces.append((arrival, data))
        if not self._is_scheduled:
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
        self._is_scheduled = True
        loop = self._network.loop
        delay = self._pieces[0][0] - loop.time()
        loop.call_in(self._sender.other.process, delay if delay > 0.0 else 0.0, self._arrive)

    def _arrive(self) -> None:
        """In the receiver's process: hand over what is due."""
        self._is_scheduled = False
        receiver, network, pieces = self._sender.other, self._network, self._pieces
        if receiver.is_over or receiver.is_held or not hasattr(receiver, "protocol"):
            return
        if (self._sender.process.host, receiver.process.host) in network.cuts:
            return
        now = network.loop.time()
        while pieces and pieces[0][0] <= now and not receiver.is_held:
            data = pieces.popleft()[1]
            if data is None:
                if not receiver.protocol.eof_received():
                    receiver.close()
            else:
                self._deliver(data)
            if receiver.is_over:
                return
        self.resume()

    def _deliver(self, data: bytes) -> None:
        receiver = self._sender.other
        protocol, at, left = receiver.protocol, 0, len(data)
        while left and not receiver.is_over:
            room = memoryview(protocol.get_buffer(-1))
            size = min(len(room), left)
            room[:size] = data[at : at + size]
            protocol.buffer_updated(size)
            at += size
            left -= size
        self._bytes -= len(data)
        if self._is_full and self._bytes < self.low_bytes:
            self._is_full = False
            loop = self._network.loop
            loop.call_in(self._sender.process, 0.0, self._sender.protocol.resume_writing)
