"""The sending side of shipping, as a pure state: what to send next, and how much is under way.

A sender owns files. For every handle it knows where the receiver wants to resume, how far the files
reach, and what it has sent but the receiver has not acknowledged. It decides what to read next; the
driver reads it, sends it and says how much it was (whole batches only). Handles take turns; the
window bounds all of them together, overshot by at most one read, so that a batch larger than what
is left of it is never stuck.

Senders may share a connection (`SharedWindow`): then the window of the connection bounds all of
them, but one of which nothing is under way may always send a first piece.

A batch that is longer than a frame is sent in parts, which take turns with what other handles have.
One is under way at a time, and of it the window counts the first part only: the receiver says
nothing of a batch before it has all of it, and what is short does not wait for that.

Invariant: what is sent for a handle is contiguous from its position: file after file, each from
byte 0 to where it was sealed; and `in_flight_bytes` is exactly what was sent, counts, and is not
acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.frames import PART_BYTES


class ReadRange(msgspec.Struct, frozen=True):
    """Send whole batches from (file, byte): at most `limit_bytes`, unless the first is larger.

    `is_part`: send so many bytes of the batch that was begun, whose parts went before.
    """

    handle: int
    file: int
    byte: int
    limit_bytes: int
    is_part: bool = False


class Seal(msgspec.Struct, frozen=True):
    """Say that the file is sent to its end, and goes on in `next_file`."""

    handle: int
    file: int
    length: int
    next_file: int


class SentPiece(msgspec.Struct):
    """One DATA, or one part: up to where, its size, and how much of that the window counts."""

    file: int
    end: int
    size: int
    counted: int


FIRST_BYTES = 64 << 10
"""Of a sender of which nothing is under way, on a connection whose window others have filled."""


class PartTurn:
    """Whose batch is being sent in parts, of all that use one connection."""

    def __init__(self) -> None:
        self.sender: Sender | None = None
        self.handle: int | None = None
        self.start = self.end = 0
        """Of the batch, in its file."""
        self.waiting: dict[tuple[Sender, int], Callable[[], None]] = {}
        """Handles whose next batch has to wait -> what to call when it need not."""

    def begin(
        self, sender: Sender, handle: int, start: int, end: int, again: Callable[[], None]
    ) -> bool:
        """Whether this handle's batch can be sent now; if not, `again` is called when it can."""
        if self.sender is not None:
            self.waiting[sender, handle] = again
            return False
        self.sender, self.handle, self.start, self.end = sender, handle, start, end
        return True

    def is_of(self, sender: Sender, handle: int) -> bool:
        """Whether it is the turn of this handle."""
        return self.handle == handle and self.sender is sender

    def leave(self, sender: Sender, handle: int) -> None:
        """The batch is sent, or given up."""
        self.waiting.pop((sender, handle), None)
        if self.is_of(sender, handle):
            self.sender = self.handle = None
            waiting, self.waiting = self.waiting, {}
            for again in waiting.values():
                again()


class SharedWindow:
    """What the senders of one connection have in common: the bytes that all of them may have under
    way, and the turn to send a batch in parts.
    """

    def __init__(self, window_bytes: int) -> None:
        self.room_bytes = window_bytes
        """Room in the window, as `Sender.room_bytes`."""
        self.part = PartTurn()
        self._window_bytes = window_bytes
        self.waiting: dict[Callable[[], None], None] = {}

    def wake(self) -> None:
        """Call the senders that have waited longest, as the room allows."""
        if self.room_bytes <= 0:
            return
        count = self.room_bytes // FIRST_BYTES + 1
        if self.room_bytes >= self._window_bytes:
            count = len(self.waiting)
        for again in tuple(self.waiting)[:count]:
            self.waiting.pop(again, None)
            again()

    def wait(self, again: Callable[[], None]) -> None:
        """Call `again`, once, when there is room."""
        self.waiting[again] = None

    def forget(self, again: Callable[[], None]) -> None:
        """Do not call it."""
        self.waiting.pop(again, None)


@dataclass(slots=True)
class SentStream:
    """One handle: (file, byte) is sent next. `files`: how far each reaches, and which is next if
    it is sealed; `sent`: of each DATA and part not acknowledged, oldest first.
    """

    file: int
    byte: int
    files: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    sent: deque[SentPiece] = field(default_factory=deque)


class Sender:
    """What one connection has to send."""

    def __init__(
        self,
        *,
        window_bytes: int,
        read_bytes: int,
        part: PartTurn | None = None,
        shared: SharedWindow | None = None,
        again: Callable[[], None] = lambda: None,
    ) -> None:
        """`read_bytes` bounds one DATA, unless a batch is longer. `part` and `shared` belong to the
        connection; `again` is called when other senders have made room in it.
        """
        self.room_bytes = window_bytes
        """What is left of the window; if that is nothing, only an acknowledgement makes room. Less
        than nothing: the last read was larger than what was left.
        """
        self.takes_bytes = 0
        """How long a batch the receiver takes."""
        self.streams: dict[int, SentStream] = {}
        """By handle; for others to read."""
        self._window_bytes = window_bytes
        self._read_bytes = read_bytes
        self._shared = shared or SharedWindow(window_bytes)
        self._again = again
        self._part = part or self._shared.part
        self.ready: deque[int] = deque()
        """Handles with something to send, though perhaps the window is full."""
        self._queued: set[int] = set()

    @property
    def in_flight_bytes(self) -> int:
        """Sent and not acknowledged, as far as it counts."""
        return self._window_bytes - self.room_bytes

    @property
    def has_room(self) -> bool:
        """Whether a window has room. If only other senders have filled it, `again` is called when
        they have made room.
        """
        return self.room_bytes > 0 < self._shared.room_bytes or self._next_size() > 0

    def _next_size(self) -> int:
        """Bytes that the next read may have; 0 while a window is full."""
        if self.room_bytes <= 0:
            return 0
        if self._shared.room_bytes > 0:
            return self._read_bytes
        if self.room_bytes == self._window_bytes:
            return min(self._read_bytes, FIRST_BYTES)
        self._shared.wait(self._again)
        return 0

    def _free(self, size_bytes: int) -> None:
        shared = self._shared
        self.room_bytes += size_bytes
        shared.room_bytes += size_bytes
        if shared.waiting:
            shared.wake()

    def welcomed(self, *, window_bytes: int, read_bytes: int) -> None:
        """Use other limits from now on; nothing was sent so far."""
        self.room_bytes = self._window_bytes = window_bytes
        self._read_bytes = read_bytes

    def close(self) -> None:
        """Give the room back to the other senders of the connection."""
        for handle in tuple(self.streams):
            self.remove(handle)
        self._shared.forget(self._again)

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
            self._part.leave(self, handle)
            if stream.sent:
                self._free(sum(piece.counted for piece in stream.sent))

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
        self._part.leave(self, handle)
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
                size = self._read_bytes
                if self.room_bytes <= 0 or self._shared.room_bytes <= 0:
                    size = self._next_size()
                if not size or (handle == self._part.handle and self._part.sender is self):
                    return self._next_part()
                limit_bytes = min(size, end - stream.byte)
                return ReadRange(handle, stream.file, stream.byte, limit_bytes)
            return self._seal(handle, stream, *known)
        return None

    def _next_part(self) -> ReadRange | None:
        """Of the batch that was begun, however full the window is; None: it is none of these."""
        handle = self._part.handle
        if handle is None or self._part.sender is not self or handle not in self._queued:
            return None
        stream = self.streams[handle]
        limit_bytes = min(PART_BYTES, self._part.end - stream.byte)
        return ReadRange(handle, stream.file, stream.byte, limit_bytes, is_part=True)

    def begin_part(
        self, handle: int, size_bytes: int, again: Callable[[], None] | None = None
    ) -> bool:
        """The next batch of the handle is so long: whether it can be sent in parts now. If not, the
        handle has nothing to send until another one's is sent.
        """
        start = self.streams[handle].byte
        again = again or partial(self._go_on_alone, handle)
        if self._part.begin(self, handle, start, start + size_bytes, again):
            return True
        self.ready.remove(handle)
        self._queued.discard(handle)
        return False

    def _go_on_alone(self, handle: int) -> None:
        self.go_on(handle)
        self._again()

    def go_on(self, handle: int) -> None:
        """The handle can send what it has."""
        stream = self.streams.get(handle)
        if stream is not None:
            self._enqueue(handle, stream)

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
        is_part = handle == self._part.handle and self._part.sender is self
        counted = 0 if is_part and stream.byte - size_bytes > self._part.start else size_bytes
        stream.sent.append(SentPiece(stream.file, stream.byte, size_bytes, counted))
        self.room_bytes -= counted
        self._shared.room_bytes -= counted
        if self.ready and self.ready[0] == handle:
            if size_bytes == room and stream.files[stream.file][1] is None:
                self._queued.discard(self.ready.popleft())
            else:
                self.ready.rotate(-1)
        if is_part and stream.byte >= self._part.end:
            self._part.leave(self, handle)

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
        freed = 0
        while stream.sent:
            first = stream.sent[0]
            if (first.file, first.end) > (file, byte):
                done = first.size - (first.end - byte) if first.file == file else 0
                if done > 0:
                    self._take_part_of(first, done)
                break
            freed += stream.sent.popleft().counted
        if freed:
            self._free(freed)

    def received(self, handle: int, size_bytes: int) -> None:
        """The receiver has taken so many bytes more. A handle that was removed is no error.

        Raises ProtocolFault (OUT_OF_RANGE) when so many were never sent.
        """
        stream = self.streams.get(handle)
        while stream is not None and size_bytes > 0:
            if not stream.sent:
                text = f"handle {handle}: {size_bytes} bytes received that were not sent"
                raise ProtocolFault(FaultCode.OUT_OF_RANGE, text, "acknowledge what was received")
            done = min(stream.sent[0].size, size_bytes)
            size_bytes -= done
            if done == stream.sent[0].size:
                self._free(stream.sent.popleft().counted)
            else:
                self._take_part_of(stream.sent[0], done)

    def _take_part_of(self, first: SentPiece, done: int) -> None:
        """Free the window of the bytes of the oldest piece that have arrived."""
        freed = min(done, first.counted)
        first.size -= done
        first.counted -= freed
        self._free(freed)

    def _enqueue(self, handle: int, stream: SentStream) -> None:
        waiting = self._part.waiting
        if handle not in self._queued and not (waiting and (self, handle) in waiting):
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
