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
        self.partial = bytearray()
        """What came of a request that is not whole yet."""

    def feed(self, data: bytes) -> list[memoryview]:
        """Take what came: the requests that are whole now, read-only. Where a request lies wholly
        in `data`, it is not copied. Raises MalformedRequest.
        """
        frames: list[memoryview] = []
        view = memoryview(data)
        while view and self.partial:
            view = self._complete(view, frames)
        while len(view) >= LENGTH_BYTES:
            end = LENGTH_BYTES + self._length(view)
            if len(view) < end:
                break
            frames.append(view[LENGTH_BYTES:end])
            view = view[end:]
        self.partial += view
        return frames

    def _complete(self, view: memoryview, frames: list[memoryview]) -> memoryview:
        """Take what a frame lacks that began before; what lies behind it."""
        partial = self.partial
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
            self.partial = bytearray()
        return view[lacking:]

    def _length(self, data: memoryview | bytearray) -> int:
        length = int.from_bytes(data[:LENGTH_BYTES], "big", signed=True)
        if not 0 < length <= self.limit_bytes:
            raise MalformedRequest(
                f"a request of {length} bytes; at most {self.limit_bytes} are taken"
            )
        return length
