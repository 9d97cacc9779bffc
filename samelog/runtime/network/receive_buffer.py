"""Memory for what a connection receives: bytes are read straight into it, frames are cut in place.

It starts small and grows as bytes have really come, at most doubling, up to the longest frame a
header may announce: a header alone costs the receiver nothing. `trim` gives memory back when a
while passed without big frames.

Invariant: `start <= stop <= capacity`; bytes [start, stop) are received and not yet handled. Who
writes into the room moves `stop`.
"""

from __future__ import annotations

from samelog.wire.frames import (
    HEADER,
    HEADER_BYTES,
    KINDS,
    LONGEST_FRAME_BYTES,
    FrameType,
    bad_header,
)

SMALLEST_BYTES = 16 << 10
ROOM_BYTES = 256 << 10
"""Free room wanted for a read while much is coming: what a read of the socket brings at most."""


class ReceiveBuffer:
    """Bytes received but not handled yet, and room for more."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(SMALLEST_BYTES))
        """What is behind `stop` is free; where that is too little, `room` makes more."""
        self.start = 0
        self.stop = 0
        self._most_used = 0

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def capacity(self) -> int:
        """Bytes of memory held."""
        return len(self.memory)

    def room(self, wanted: int) -> memoryview:
        """Where the next bytes go: at least one byte, `wanted` if that is within bounds."""
        if self.start == self.stop:
            self.start = self.stop = 0
        wanted = min(wanted, ROOM_BYTES)
        if len(self.memory) - self.stop < wanted:
            self._make_room(wanted)
        return self.memory[self.stop :]

    def next(self) -> tuple[FrameType, memoryview] | None:
        """Type and payload of the next frame, or None: need more. Raises FrameError."""
        start = self.start
        held = self.stop - start
        if held < HEADER_BYTES:
            return None
        length, *rest = HEADER.unpack_from(self.memory, start)
        kind = KINDS.get(tuple(rest))
        if kind is None or not kind[1] <= length <= kind[2]:
            raise bad_header(length, *rest)
        size = HEADER_BYTES + length
        if held < size:
            return None
        self.start = start + size
        return kind[0], self.memory[start + HEADER_BYTES : start + size]

    def trim(self) -> None:
        """Give memory back that was not needed since the last call."""
        if self.start == self.stop and self._most_used <= SMALLEST_BYTES < len(self.memory):
            self.memory = memoryview(bytearray(SMALLEST_BYTES))
            self.start = self.stop = 0
        self._most_used = 0

    def _make_room(self, wanted: int) -> None:
        """Move what is held to the front; where that is not enough, to twice the memory."""
        held = self.stop - self.start
        self._most_used = max(self._most_used, held + wanted)
        capacity = len(self.memory)
        memory = self.memory
        if capacity - held < wanted:
            capacity = min(LONGEST_FRAME_BYTES + ROOM_BYTES, max(2 * capacity, held + wanted))
            memory = memoryview(bytearray(capacity))
        memory[:held] = self.memory[self.start : self.stop]
        self.memory = memory
        self.start, self.stop = 0, held
