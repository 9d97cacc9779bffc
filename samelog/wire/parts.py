"""Batches that are longer than a frame: they come in parts, between the frames of other logs.

Whoever takes batches takes whole ones. So parts are gathered here, one batch at a time for each
connection, and memory is taken as bytes have really come.

Invariant: a batch is handed on only when all its bytes have come, in order; it is longer than what
goes in one frame, and no longer than any batch may be.
"""

from __future__ import annotations

from collections.abc import Callable

from samelog.format.batch import HELD_BATCH_BYTES, LENGTH_PREFIX_BYTES
from samelog.wire.errors import FrameError, FrameProblem
from samelog.wire.frames import DATA_HEADER_BYTES, LONGEST_IN_DATA_BYTES, decode_data_header

_Place = tuple[int, int, int, int]
"""(channel, handle, file, byte)."""
_LENGTH_AT = 8


class PartialBatch:
    """What has come of one batch, at most."""

    def __init__(self) -> None:
        self._start: _Place = (-1, 0, 0, 0)
        self._data = bytearray()
        self._size = 0

    def take_frame(
        self,
        payload: memoryview,
        channel: int,
        on_data: Callable[[int, int, int, memoryview], None],
    ) -> None:
        """A PART payload came on a channel: `on_data` is called with the batch if it is whole now.
        Raises FrameError.
        """
        handle, file, byte = decode_data_header(payload)
        with payload[DATA_HEADER_BYTES:] as part:
            start, whole = self.take(handle, file, byte, part, channel)
        if whole:
            with memoryview(whole) as data:
                on_data(handle, file, start, data)

    def take(
        self, handle: int, file: int, byte: int, part: memoryview, channel: int = 0
    ) -> tuple[int, bytearray]:
        """Where the batch starts, and the whole batch; nothing of it as long as it is not whole.
        What does not go on with the batch begins another one. Raises FrameError.
        """
        if (channel, handle, file, byte - len(self._data)) != self._start or not self._data:
            self._begin((channel, handle, file, byte), part)
        if len(self._data) + len(part) > self._size:
            text = f"a part ends {len(self._data) + len(part) - self._size} bytes behind its batch"
            raise FrameError(FrameProblem.TOO_LONG, text)
        self._data += part
        if len(self._data) < self._size:
            return self._start[3], bytearray()
        whole, self._data = self._data, bytearray()
        return self._start[3], whole

    def _begin(self, start: _Place, part: memoryview) -> None:
        if len(part) < LENGTH_PREFIX_BYTES:
            text = f"{len(part)} bytes do not say how long a batch is"
            raise FrameError(FrameProblem.TOO_SHORT, text)
        length = int.from_bytes(part[_LENGTH_AT:LENGTH_PREFIX_BYTES], "big", signed=True)
        size = length + LENGTH_PREFIX_BYTES
        if not LONGEST_IN_DATA_BYTES < size <= HELD_BATCH_BYTES:
            problem = FrameProblem.TOO_LONG if size > 0 else FrameProblem.TOO_SHORT
            text = (
                f"a batch of {size} bytes in parts; they are for more than {LONGEST_IN_DATA_BYTES} "
                f"and up to {HELD_BATCH_BYTES}"
            )
            raise FrameError(problem, text)
        self._start, self._data, self._size = start, bytearray(), size
