"""The newest bytes of logs, kept in memory for readers that are nearly current, so that they never
wait for a disk from which something else has driven them out. Older bytes are read from files.

A *segment* is a file of a log: one of a merged log, or a roll of a session log, whose *layout* is
its run.

Bytes are kept in pieces, which end at some size; each log's follow each other. A piece that is the
oldest of all logs goes first, whichever log it is of.

Invariant: what is read here is what the log's file has at that place (rule logs.8); all pieces
together, with what they cost beside their bytes, never take more than the limit (rule logs.9).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from operator import attrgetter
from typing import Protocol

from samelog.format.batch import Bytes

PIECE_BYTES = 256 << 10
PIECE_COST_BYTES = 512
"""What a piece takes beside its bytes, about."""


class _TailPiece:
    """Bytes of one segment that follow each other."""

    __slots__ = ("data", "log", "place")

    def __init__(self, log: LogTail, segment: int, byte: int) -> None:
        self.log: LogTail | None = log
        """None: it is not read any more, and waits for its turn to go."""
        self.place = segment, byte
        self.data: bytearray | memoryview = bytearray()
        """What was large when it was written is a view, and does not grow."""

    @property
    def end(self) -> tuple[int, int]:
        """The place behind it."""
        return self.place[0], self.place[1] + len(self.data)


_PLACE = attrgetter("place")


def is_lasting(data: Bytes) -> bool:
    """Whether these bytes never change, and keep little else in memory: a view that is read-only
    was given away by its writer.
    """
    if not isinstance(data, memoryview):
        return isinstance(data, bytes)
    return data.readonly and 4 * len(data) >= 3 * memoryview(data.obj).nbytes


class HasTail(Protocol):
    """What may keep its newest bytes in memory."""

    recent: LogTail | None


class TailMemory:
    """Of all logs of a node."""

    def __init__(self, limit_bytes: int, *, copies_large: bool = True) -> None:
        """`limit_bytes` 0: nothing is kept. `copies_large`: much that is written at once is kept
        even if that takes a copy. Where it is read once, the file's pages have it as cheaply.
        """
        self.limit_bytes = limit_bytes
        self.copies_large = copies_large
        self.held_bytes = 0
        self.reads = 0
        """Answered from here."""
        self.piece_bytes = min(PIECE_BYTES, limit_bytes // 8)
        self.large_bytes = self.piece_bytes // 8
        """What is written at once and is as large is a piece of its own."""
        self._pieces: deque[_TailPiece] = deque()
        """In the order in which they were begun."""

    def new_log(self) -> LogTail | None:
        """Of a log that was opened; None: nothing is kept."""
        return LogTail(self) if self.limit_bytes else None

    def follow(self, log: HasTail) -> None:
        """A log was opened, or is open still."""
        log.recent = log.recent or self.new_log()

    def begin(self, piece: _TailPiece) -> None:
        """A log has begun another piece."""
        self._pieces.append(piece)
        self.held_bytes += PIECE_COST_BYTES

    def trim(self) -> None:
        """Drop the oldest pieces until the rest fits the limit."""
        while self.held_bytes > self.limit_bytes:
            oldest = self._pieces.popleft()
            self.held_bytes -= len(oldest.data) + PIECE_COST_BYTES
            if oldest.log is not None:
                oldest.log.lost_oldest()

    def empty(self, piece: _TailPiece) -> None:
        """What a piece has is not read any more."""
        piece.log = None
        self.held_bytes -= len(piece.data)
        piece.data = bytearray()


NOTHING_KEPT = TailMemory(0)


class LogTail:
    """Of one log. `layout`: as long as it is the same, what was written stays where it is."""

    def __init__(self, memory: TailMemory) -> None:
        self._memory = memory
        self._layout = -1
        self._pieces: list[_TailPiece] = []

    def wrote(
        self, layout: int, segment: int, byte: int, data: Bytes, *, is_final: bool = False
    ) -> None:
        """These bytes stand in the file of a segment, from a byte on. `is_final`: `data` is changed
        no more, so it need not be copied; nor need what is lasting.
        """
        memory = self._memory
        size = len(data)
        is_large = size >= memory.large_bytes
        if is_large:
            is_final = is_final or is_lasting(data)
            if not is_final and not memory.copies_large:
                self.clear()
                return
        piece = self._piece_of(layout, segment, byte, is_large=is_large)
        if is_large:
            piece.data = memoryview(data if is_final else bytes(data))
        elif isinstance(piece.data, bytearray):
            piece.data += data
        memory.held_bytes += size
        if memory.held_bytes > memory.limit_bytes:
            memory.trim()

    def _piece_of(self, layout: int, segment: int, byte: int, *, is_large: bool) -> _TailPiece:
        newest = self._pieces[-1] if self._pieces and self._layout == layout else None
        if newest is None or (byte and newest.end != (segment, byte)):
            self.clear()
            self._layout = layout
            return self._begin(segment, byte)
        can_grow = isinstance(newest.data, bytearray) and not is_large and byte > 0
        if can_grow and len(newest.data) < self._memory.piece_bytes:
            return newest
        return self._begin(segment, byte)

    def _begin(self, segment: int, byte: int) -> _TailPiece:
        piece = _TailPiece(self, segment, byte)
        self._pieces.append(piece)
        self._memory.begin(piece)
        return piece

    def read(self, layout: int, segment: int, byte: int, size: int) -> bytes | None:
        """So many bytes of a segment from a byte on; None if not all of them are here."""
        parts = self._parts(layout, segment, byte, size)
        return None if parts is None else b"".join(parts)

    def copy(self, layout: int, segment: int, byte: int, size: int) -> bytearray | None:
        """As `read`, into a buffer that the caller may change."""
        parts = self._parts(layout, segment, byte, size)
        return None if parts is None else bytearray().join(parts)

    def _parts(self, layout: int, segment: int, byte: int, size: int) -> list[memoryview] | None:
        if layout != self._layout:
            return None
        number = bisect_right(self._pieces, (segment, byte), key=_PLACE) - 1
        if number < 0:
            return None
        parts: list[memoryview] = []
        missing = size
        for piece in self._pieces[number:]:
            if piece.place[0] != segment:
                return None
            start = byte + size - missing - piece.place[1]
            part = memoryview(piece.data)[start : start + missing]
            missing -= len(part)
            parts.append(part)
            if not missing:
                self._memory.reads += 1
                return parts
        return None

    def forget(self, layout: int, segment: int, byte: int) -> None:
        """Drop the pieces that lie wholly below this place, which readers do not need any more."""
        if layout != self._layout:
            return
        last = max(0, bisect_right(self._pieces, (segment, byte), key=_PLACE) - 1)
        for piece in self._pieces[:last]:
            self._memory.empty(piece)
        del self._pieces[:last]

    def lost_oldest(self) -> None:
        """The oldest piece is gone."""
        del self._pieces[0]

    def clear(self) -> None:
        """Drop everything: the log was changed, or is closed."""
        for piece in self._pieces:
            self._memory.empty(piece)
        self._pieces.clear()
