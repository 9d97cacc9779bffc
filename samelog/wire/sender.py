"""The sending side of shipping, as a pure state: what to send next, and how much is under way.

A sender owns files. For every handle it knows where the receiver wants to resume, how far the files
reach, and what it has sent but the receiver has not acknowledged. It decides what to read next; the
driver reads it, sends it and says how much it was (whole batches only). Handles take turns; the
window bounds all of them together, overshot by at most one read, so that a batch larger than what
is left of it is never stuck.

Invariant: what is sent for a handle is contiguous from its position: file after file, each from
byte 0 to where it was sealed; and `in_flight_bytes` is exactly what was sent and is not
acknowledged.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from samelog.wire.errors import FaultCode, ProtocolFault


class ReadRange(msgspec.Struct, frozen=True):
    """Send whole batches from (file, byte): at most `limit_bytes`, unless the first is larger."""

    handle: int
    file: int
    byte: int
    limit_bytes: int


class Seal(msgspec.Struct, frozen=True):
    """Say that the file is sent to its end, and goes on in `next_file`."""

    handle: int
    file: int
    length: int
    next_file: int


@dataclass(slots=True)
class SentStream:
    """One handle: (file, byte) is sent next. `files`: how far each reaches, and which is next if
    it is sealed; `sent`: (file, end byte, size) of each DATA not acknowledged, oldest first.
    """

    file: int
    byte: int
    files: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    sent: deque[tuple[int, int, int]] = field(default_factory=deque)


class Sender:
    """What one connection has to send."""

    def __init__(self, *, window_bytes: int, read_bytes: int) -> None:
        """`read_bytes` bounds one DATA; it should be at least the largest batch."""
        self.room_bytes = window_bytes
        """What is left of the window; if that is nothing, only an acknowledgement makes room. Less
        than nothing: the last read was larger than what was left.
        """
        self.streams: dict[int, SentStream] = {}
        """By handle; for others to read."""
        self._window_bytes = window_bytes
        self._read_bytes = read_bytes
        self.ready: deque[int] = deque()
        """Handles with something to send, though perhaps the window is full."""
        self._queued: set[int] = set()

    @property
    def in_flight_bytes(self) -> int:
        """Sent and not acknowledged."""
        return self._window_bytes - self.room_bytes

    def position(self, handle: int) -> tuple[int, int]:
        """(file, byte) of what is sent next. Raises KeyError for an unknown handle."""
        stream = self.streams[handle]
        return stream.file, stream.byte

    def add(self, handle: int, file: int, byte: int) -> None:
        """Send `handle` from where its receiver wants it. Raises ValueError if it is known."""
        if handle in self.streams:
            raise ValueError(f"handle {handle} is being sent already")
        self.streams[handle] = SentStream(file, byte)

    def remove(self, handle: int) -> None:
        """Forget a handle and what is under way for it; an unknown one is no error."""
        stream = self.streams.pop(handle, None)
        if stream is not None:
            self.room_bytes += sum(size for _, _, size in stream.sent)

    def available(self, handle: int, file: int, end: int, *, next_file: int | None = None) -> None:
        """`file` can be sent up to `end`, a batch boundary; `next_file` if it grows no more.

        Raises ValueError when a file shrinks, or a sealed one changes.
        """
        stream = self.streams[handle]
        if file < stream.file:
            return
        known = stream.files.get(file)
        extent = end, next_file
        if known == extent:
            return
        if known is not None and (end < known[0] or known[1] is not None):
            raise ValueError(f"file {file} went from {known} to {extent}")
        stream.files[file] = extent
        self._enqueue(handle, stream)

    def jump(self, handle: int, file: int, byte: int) -> None:
        """Continue at a later position: the driver has removed what is below. Raises ValueError if
        the position is behind.
        """
        stream = self.streams[handle]
        if (file, byte) < (stream.file, stream.byte):
            raise ValueError(f"handle {handle} is at {(stream.file, stream.byte)} already")
        stream.file, stream.byte = file, byte
        for number in [number for number in stream.files if number < file]:
            del stream.files[number]
        self._enqueue(handle, stream)

    def next_read(self) -> ReadRange | Seal | None:
        """What to do next; None: nothing to send, or the window is full."""
        while self.ready:
            handle = self.ready[0]
            stream = self.streams.get(handle)
            known = None if stream is None else stream.files.get(stream.file)
            if stream is None or known is None or (stream.byte >= known[0] and known[1] is None):
                self._queued.discard(self.ready.popleft())
                continue
            end = known[0]
            if stream.byte < end:
                if self.room_bytes <= 0:
                    return None
                limit_bytes = min(self._read_bytes, end - stream.byte)
                return ReadRange(handle, stream.file, stream.byte, limit_bytes)
            return self._seal(handle, stream, *known)
        return None

    def next_first_read(self, limit_bytes: int) -> ReadRange | None:
        """For a handle of which nothing is under way, though the window is full; None: there is
        none.
        """
        for _ in range(len(self.ready)):
            handle = self.ready[0]
            stream = self.streams.get(handle)
            if stream is not None and not stream.sent:
                left = stream.files.get(stream.file, (0, None))[0] - stream.byte
                if left > 0:
                    return ReadRange(handle, stream.file, stream.byte, min(limit_bytes, left))
            self.ready.rotate(-1)
        return None

    def sent(self, handle: int, size_bytes: int) -> None:
        """The driver sent so much of what `next_read` told it. Raises ValueError beyond."""
        stream = self.streams[handle]
        room = stream.files[stream.file][0] - stream.byte
        if not 0 < size_bytes <= room:
            raise ValueError(f"{size_bytes} bytes sent of {room}")
        stream.byte += size_bytes
        stream.sent.append((stream.file, stream.byte, size_bytes))
        self.room_bytes -= size_bytes
        if self.ready and self.ready[0] == handle:
            if size_bytes == room and stream.files[stream.file][1] is None:
                self._queued.discard(self.ready.popleft())
            else:
                self.ready.rotate(-1)

    def acknowledged(self, handle: int, file: int, byte: int) -> None:
        """The receiver has everything below (file, byte), perhaps a part of a DATA. A handle that
        was removed is no error.

        Raises ProtocolFault (OUT_OF_RANGE) when that was never sent.
        """
        stream = self.streams.get(handle)
        if stream is None:
            return
        if stream.sent and (file, byte) > (stream.file, stream.byte):
            raise ProtocolFault(
                FaultCode.OUT_OF_RANGE,
                f"handle {handle}: {(file, byte)} acknowledged, sent {(stream.file, stream.byte)}",
                "acknowledge only what was received",
            )
        while stream.sent and stream.sent[0][:2] <= (file, byte):
            self.room_bytes += stream.sent.popleft()[2]
        if stream.sent:
            first_file, end, size = stream.sent[0]
            done = size - (end - byte) if first_file == file else 0
            if done > 0:
                stream.sent[0] = (first_file, end, size - done)
                self.room_bytes += done

    def received(self, handle: int, size_bytes: int) -> None:
        """The receiver has taken so many bytes more. A handle that was removed is no error.

        Raises ProtocolFault (OUT_OF_RANGE) when so many were never sent.
        """
        stream = self.streams.get(handle)
        while stream is not None and size_bytes > 0:
            if not stream.sent:
                text = f"handle {handle}: {size_bytes} bytes received that were not sent"
                raise ProtocolFault(FaultCode.OUT_OF_RANGE, text, "acknowledge what was received")
            file, end, size = stream.sent.popleft()
            done = min(size, size_bytes)
            self.room_bytes += done
            size_bytes -= done
            if done < size:
                stream.sent.appendleft((file, end, size - done))

    def _enqueue(self, handle: int, stream: SentStream) -> None:
        if handle not in self._queued:
            known = stream.files.get(stream.file)
            if known is not None and (stream.byte < known[0] or known[1] is not None):
                self._queued.add(handle)
                self.ready.append(handle)

    def _seal(self, handle: int, stream: SentStream, end: int, next_file: int | None) -> Seal:
        if next_file is None:
            raise ValueError(f"handle {handle} has nothing to send")
        seal = Seal(handle, stream.file, end, next_file)
        del stream.files[stream.file]
        stream.file, stream.byte = next_file, 0
        return seal
