"""Cuts a stream of bytes into requests.

A frame is a 4-byte length, big endian and signed, and as many bytes (Kafka's NetworkReceive).

Invariant: no memory is set aside for a length that is only claimed: what is held is what came.
"""

from __future__ import annotations

from samelog.kafka.codec.errors import MalformedRequest

LENGTH_BYTES = 4


class FrameReader:
    """One connection's incoming bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        """How long a request may be."""
        self._partial = bytearray()

    @property
    def held_bytes(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._partial)

    def feed(self, data: bytes) -> list[memoryview]:
        """Take what came: the requests that are whole now, read-only. Where a request lies wholly
        in `data`, it is not copied. Raises MalformedRequest.
        """
        frames: list[memoryview] = []
        view = memoryview(data)
        while view:
            if self._partial:
                view = self._complete(view, frames)
            else:
                view = self._slice(view, frames)
        return frames

    def _slice(self, view: memoryview, frames: list[memoryview]) -> memoryview:
        """Take a frame that begins in `view`; what lies behind it."""
        end = LENGTH_BYTES + self._length(view) if len(view) >= LENGTH_BYTES else LENGTH_BYTES
        if len(view) < end:
            self._partial += view
            return view[:0]
        frames.append(view[LENGTH_BYTES:end])
        return view[end:]

    def _complete(self, view: memoryview, frames: list[memoryview]) -> memoryview:
        """Take what a frame lacks that began before; what lies behind it."""
        partial = self._partial
        if len(partial) < LENGTH_BYTES:
            lacking = LENGTH_BYTES - len(partial)
            partial += view[:lacking]
            view = view[lacking:]
            if len(partial) < LENGTH_BYTES:
                return view
        lacking = LENGTH_BYTES + self._length(partial) - len(partial)
        partial += view[:lacking]
        if len(view) >= lacking:
            frames.append(memoryview(partial).toreadonly()[LENGTH_BYTES:])
            self._partial = bytearray()
        return view[lacking:]

    def _length(self, data: memoryview | bytearray) -> int:
        length = int.from_bytes(data[:LENGTH_BYTES], "big", signed=True)
        if not 0 < length <= self.limit_bytes:
            raise MalformedRequest(
                f"a request of {length} bytes; at most {self.limit_bytes} are taken"
            )
        return length
