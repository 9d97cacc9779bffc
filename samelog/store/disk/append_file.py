"""One growing file: appends behind its end, with blocks reserved ahead.

Reserving ahead makes appends several times cheaper, because the file system then allocates rarely;
the steps double from one block to 64 MiB, so that thousands of small logs stay small on disk.
Nothing here syncs.

Invariant: `size` counts whole appends only. What a failed write left behind lies beyond it, is
written over by the next append and cut off by `seal`.
"""

from __future__ import annotations

from samelog.format.batch import Bytes
from samelog.store.disk.files import File

FIRST_STEP_BYTES = 4 << 10
LAST_STEP_BYTES = 64 << 20


class AppendFile:
    """A file open for appending; `size` is the position of the next append."""

    __slots__ = ("_reserved", "_step", "file", "size")

    def __init__(self, file: File, size: int) -> None:
        self.file = file
        self.size = size
        self._reserved = size
        self._step = FIRST_STEP_BYTES

    def append(self, data: Bytes) -> int:
        """Write all of `data` at the end; the position it got. Raises DiskFault: nothing counts."""
        position = self.size
        end = position + len(data)
        if end > self._reserved:
            self._reserve(end)
        self.file.pwrite(data, position)
        self.size = end
        return position

    def _reserve(self, end: int) -> None:
        """Up to the next multiple of the step, which is no smaller than what is appended."""
        while self._step < min(end - self._reserved, LAST_STEP_BYTES):
            self._step *= 2
        stop = -(-end // self._step) * self._step
        self.file.preallocate(self._reserved, stop - self._reserved)
        self._reserved = stop
        self._step = min(2 * self._step, LAST_STEP_BYTES)

    def start_at(self, position: int) -> None:
        """Leave a hole: the next append goes to `position`, which is not before the end."""
        if position < self.size:
            raise ValueError(f"position {position} lies before the end, {self.size}")
        self.size = self._reserved = position

    def cut(self, size: int) -> None:
        """Drop what lies behind `size`, and give back what is reserved."""
        self.file.truncate(size)
        self.size = self._reserved = size
        self._step = FIRST_STEP_BYTES

    def seal(self) -> None:
        """Give back what is reserved; the file will not grow any more."""
        self.cut(self.size)
