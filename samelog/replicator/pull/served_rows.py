"""What passes of a merged partition, as a pull server sends it: rows for who wants few of them.

The reader names the places: its files are its own, begin where it says, and hold what passed. Here
pieces are computed ahead of what is sent, one at a time, and no more than the reader takes.

Invariant: what is sent stands for every offset from the reader's on, in order; a piece that cannot
be computed ends the handle with the reason.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.format.errors import LogFormatError
from samelog.replicator.interfaces import (
    FilePosition,
    MergedReading,
    RequestRefused,
    RowReading,
    StreamListener,
)
from samelog.replicator.pull.listening import Listening
from samelog.replicator.pull.streams import ServedMerged
from samelog.runtime.loop import spawn
from samelog.store.disk.files import NoSuchFile
from samelog.store.merged.truncation import LogStart
from samelog.wire.errors import FaultCode
from samelog.wire.messages import OpenMerged, Start
from samelog.wire.push.effects import FileExtent

AHEAD_BYTES = 2 << 20
"""So much may wait here to be sent."""
SEGMENT_BYTES = 16 << 20
"""Of the reader's files."""
NOWHERE = (-1, -1)


class _Ready(NamedTuple):
    """A piece that waits to be sent."""

    file: int
    byte: int
    data: bytes


class RowStream(Listening):
    """What one reader gets. Implements interfaces.MergedStream."""

    def __init__(self, reading: RowReading) -> None:
        super().__init__()
        base = reading.stream
        self.topic, self.topic_id = base.topic, base.topic_id
        self.partitions, self.index = base.partitions, base.index
        self.reading, self._base = reading, base
        self.looked = 0
        """Below it everything is computed."""
        self.archived = 0
        """Where it went on, when what was to come next had been archived; 0: that never was."""
        self.place: FilePosition = (0, 0)
        """Where the next piece goes."""
        self.sealed: dict[int, tuple[int, int]] = {}
        """File -> its length, and the next file."""
        self.ready: deque[_Ready] = deque()
        self._fault: RequestRefused | None = None
        self._is_busy = False

    @property
    def log(self) -> MergedReading:
        """What it is computed from."""
        return self._base.log

    @property
    def fault(self) -> RequestRefused | None:
        """Why nothing comes any more."""
        return self._fault or self._base.fault

    def suspect(self, base_offset: int) -> None:
        """What is sent was computed: a complaint says nothing of the base's files."""

    def add_listener(self, listener: StreamListener) -> None:
        """As of any stream; begin to compute."""
        super().add_listener(listener)
        self._base.add_listener(self._base_changed)
        self.go_on()

    def remove_listener(self, listener: StreamListener) -> None:
        """As of any stream; compute no more."""
        super().remove_listener(listener)
        self._base.remove_listener(self._base_changed)

    def _base_changed(self) -> None:
        if self.fault is not None:
            self.changed()
        else:
            self.go_on()

    # --- computing -----------------------------------------------------------------------------

    def begin(self, offset: int, place: FilePosition) -> None:
        """The reader is at an offset, and wants what follows at this place."""
        self.looked, self.place = offset, place

    def go_on(self) -> None:
        """Compute the next piece, if it is time for one."""
        if self._is_busy or not self._listeners or self._waiting_bytes() >= AHEAD_BYTES:
            return
        if self.looked < self.log.start_offset:
            self._skip_archived()
        try:
            has_more = self.looked < self.reading.end
        except LogFormatError as error:
            self._fail(_unreadable(error))
            return
        if has_more:
            self._is_busy = True
            spawn(self._compute(), "pull: rows")

    def _waiting_bytes(self) -> int:
        return sum(len(each.data) for each in self.ready)

    def _skip_archived(self) -> None:
        start = self.log.start_offset
        self.looked = self.archived = start
        self.place = start, 0
        self.ready.clear()
        self.sealed.clear()
        self.changed()

    async def _compute(self) -> None:
        begun = self.looked
        try:
            data, behind = await self.reading.piece(begun)
        except RequestRefused as refused:
            self._fail(refused)
            return
        finally:
            self._is_busy = False
        if self._listeners and self.looked == begun:
            self._take(data, behind)
        self.go_on()

    def _fail(self, refused: RequestRefused) -> None:
        self._fault = refused
        self.changed()

    def _take(self, data: bytes, behind: int) -> None:
        file, byte = self.place
        self.ready.append(_Ready(file, byte, data))
        self.looked, self.place = behind, (file, byte + len(data))
        if self.place[1] >= SEGMENT_BYTES:
            self.sealed[file] = self.place[1], behind
            self.place = behind, 0
        self.changed()

    # --- reading -------------------------------------------------------------------------------

    def at(self, file: int, byte: int) -> memoryview:
        """The bytes there that wait to be sent; what is before was sent."""
        while self.ready and not _holds(self.ready[0], file, byte):
            self.ready.popleft()
        if not self.ready:
            raise NoSuchFile(f"no rows wait at {file}:{byte}")
        first = self.ready[0]
        self.go_on()
        return memoryview(first.data)[byte - first.byte :]


def _holds(piece: _Ready, file: int, byte: int) -> bool:
    return piece.file == file and piece.byte <= byte < piece.byte + len(piece.data)


def _unreadable(error: LogFormatError) -> RequestRefused:
    text = f"this node cannot read it: {error}"
    return RequestRefused(FaultCode.NOT_READY, text, "ask another node")


class ServedRows(ServedMerged):
    """What passes of a merged partition."""

    shows_end = False  # the node may have checked offsets behind the last batch
    stream: RowStream

    def __init__(self, reading: RowReading) -> None:
        super().__init__(RowStream(reading))

    def start(self, message: OpenMerged) -> tuple[int, FilePosition]:
        """(offset, place) where DATA starts; what is archived is passed over. Raises
        RequestRefused.
        """
        stream = self.stream
        if message.start is not Start.POSITION:
            offset, _ = super().start(message)
            stream.begin(offset, (offset, 0))
            return offset, stream.place
        offset = -message.value
        if offset > stream.log.next_offset:
            text = f"this node holds up to {stream.log.next_offset}, you are at {offset}"
            raise RequestRefused(FaultCode.NOT_READY, text, "retry, or ask another node")
        stream.begin(offset, (message.base_offset, message.byte))
        if offset < stream.log.start_offset:
            stream.begin(stream.log.start_offset, (stream.log.start_offset, 0))
            stream.archived = stream.log.start_offset
        return 0, stream.place

    def log_start(self) -> LogStart:
        """Where the reader goes on, if what it wanted is archived."""
        return LogStart(self.stream.archived, self.stream.archived, 0)

    def extent(self, file: int) -> FileExtent | None:
        """How far the reader's file reaches, as far as that is computed."""
        if file in self.stream.sealed:
            return FileExtent(*self.stream.sealed[file])
        now, byte = self.stream.place
        return FileExtent(byte, None) if file == now else None

    def end(self) -> FilePosition:
        """Where all ends that there is; nowhere while more is to be looked at."""
        try:
            return self.stream.place if self.stream.looked >= self.stream.reading.end else NOWHERE
        except LogFormatError:
            return NOWHERE

    def end_offset(self) -> int:
        """Up to where it was looked."""
        return self.stream.looked

    def read(self, file: int, byte: int, limit_bytes: int) -> bytes:
        """Whole batches. Raises LogFormatError."""
        data = self.stream.at(file, byte)
        found = kernels.scan(
            data, verify_crc=False, max_batch_bytes=HELD_BATCH_BYTES, max_bytes=limit_bytes
        )
        return bytes(data[: found.end])

    def read_part(self, file: int, byte: int, size_bytes: int) -> bytes:
        """Bytes of a batch. Raises LogFormatError."""
        return bytes(self.stream.at(file, byte)[:size_bytes])
