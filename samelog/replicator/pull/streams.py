"""What a pull server sends, in one shape: a merged partition, or one run of an input.

A file is a segment of a merged log (numbered by its base offset) or a roll of a session log.

Invariant: only whole batches are read, from a batch boundary; a place that both sides do not agree
on is refused.
"""

from __future__ import annotations

from typing import Protocol

from samelog.format import _kernels as kernels
from samelog.format.batch import (
    HELD_BATCH_BYTES,
    LENGTH_PREFIX_BYTES,
    read_header,
    told_size,
)
from samelog.format.errors import CorruptLog
from samelog.replicator.interfaces import (
    FilePosition,
    MergedReading,
    MergedStream,
    RequestRefused,
    SessionReading,
    SessionStream,
)
from samelog.store.disk.files import NoSuchFile
from samelog.store.merged.truncation import LogStart
from samelog.wire.bounds import AbortedPart
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import (
    OpenMerged,
    OpenSessionLog,
    RollSealed,
    SegmentSealed,
    Start,
)
from samelog.wire.pull.sender import BEGINNING, SentLog
from samelog.wire.push.effects import FileExtent
from samelog.wire.receiver import check_common
from samelog.wire.sender import Seal
from samelog.wire.transaction_messages import ABORTED_TOLD, AbortedFound, FindAborted


class Served(SentLog, Protocol):
    """A log as a pull server sends it."""

    @property
    def stream(self) -> MergedStream | SessionStream:
        """Where it comes from."""

    def read(self, file: int, byte: int, limit_bytes: int) -> bytes:
        """Whole batches from `byte`: up to `limit_bytes`, at least one. Raises LogFormatError."""

    def read_part(self, file: int, byte: int, size_bytes: int) -> bytes:
        """Bytes of a batch that was read before. Raises LogFormatError."""

    def suspect(self) -> None:
        """Something that was read is not valid."""


class ServedMerged:
    """A merged partition."""

    shows_end = True

    def __init__(self, stream: MergedStream) -> None:
        self.stream = stream
        self._read = 0
        """The segment that was read last."""
        self._numbers: dict[int, int] = {}
        """Segment -> the compaction that had made it when it was first sent."""
        self._seen: tuple[int, int] | None = None
        """Segment, and the layout of `_log` in which it was still of that one."""
        self._log: MergedReading | None = None
        self._is_exact = False
        """Whether the reader says which compactions made the segments that it wants."""
        self.is_asked = False
        """Whether the cluster is being asked where it ends."""

    def start(self, message: OpenMerged) -> tuple[int, FilePosition]:
        """(offset, place) where DATA starts: for a copy that ends in what is archived, behind that.
        Raises RequestRefused (OUT_OF_RANGE, NOT_READY, FORK).
        """
        if message.start is Start.POSITION:
            place = self._client_place(message)
            self._is_exact = message.value > 0
            if self._is_exact:
                self._check_number(message.value - 1, place)
            return 0, place
        offset = self._first_offset(message)
        log = self.stream.log
        if not log.start_offset <= offset <= log.next_offset:
            raise RequestRefused(
                FaultCode.OUT_OF_RANGE,
                f"offset {offset} is not in [{log.start_offset}, {log.next_offset}]",
                "start at an offset that there is, or at earliest or latest",
                earliest=log.start_offset,
            )
        return offset, log.locate(offset)

    def _first_offset(self, message: OpenMerged) -> int:
        log = self.stream.log
        match message.start:
            case Start.EARLIEST:
                return log.start_offset
            case Start.LATEST:
                return log.next_offset
            case Start.TIMESTAMP:
                return log.locate_timestamp(message.value)
            case _:
                return message.value

    def _client_place(self, message: OpenMerged) -> FilePosition:
        """Where the client's copy ends, if this log holds the same batch before that."""
        place = message.base_offset, message.byte
        extent = self.extent(message.base_offset)
        if place > self.end():
            raise _behind(place, self.end())
        if extent is None and message.base_offset < self.log_start().segment:
            return self.log_start().segment, 0
        if extent is None and message.base_offset < self._first_base():
            raise _no_longer(place, (self._first_base(), 0))
        compacted = self.stream.log.compacted_around(message.base_offset)
        try:
            self._check_end(message, extent)
        except ProtocolFault:
            if compacted is None or message.value > 0 or self._has_forked(compacted, message):
                raise
            return compacted, 0  # the reader's copy is older: it fetches that segment again
        return place

    def _has_forked(self, base: int, message: OpenMerged) -> bool:
        """Whether the reader's copy is of another log than the one that was compacted here, as far
        as its last batch shows: one that lost nothing is as it was merged, and no segment of before
        reached over the end of a compacted one.
        """
        log, end, stop = self.stream.log, -message.value, self._end_of(base)
        if message.last_start < 0 or not max(base, log.start_offset) < end <= stop:
            return end > stop
        header = read_header(log.read(*log.locate(end - 1), 1))
        is_whole = header.records == header.next_offset - header.base_offset
        return is_whole and (header.next_offset, header.crc) != (end, message.last_crc)

    def _end_of(self, base: int) -> int:
        segment = self.stream.log.segment(base)
        return base if segment is None else segment.next_offset

    def _check_end(self, message: OpenMerged, extent: FileExtent | None) -> None:
        """Raises ProtocolFault: the client's copy is not a beginning of this log."""
        place = message.base_offset, message.byte
        if extent is None or message.byte > extent.end:
            raise _fork(message.handle, place)
        _check_last(self, message, place)

    def _check_number(self, wanted: int, place: FilePosition) -> None:
        """A node names the compaction that made the segment. Raises RequestRefused."""
        number = self._numbers[place[0]] = self.stream.log.number_of(place[0])
        if number != wanted:
            text = f"segment {place[0]} is of compaction {number} here, not {wanted}"
            raise RequestRefused(FaultCode.NOT_READY, text, "retry, or ask another node")

    def _first_base(self) -> int:
        return self.stream.log.segments()[0].base_offset

    def log_start(self) -> LogStart:
        """From where on it is kept."""
        return self.stream.log.log_start

    def extent(self, file: int) -> FileExtent | None:
        """How far a segment reaches."""
        log = self.stream.log
        layout = log.layout
        if self._seen != (file, layout) or self._log is not log:
            number = log.number_of(file)
            if number != self._numbers.setdefault(file, 0 if self._is_exact else number):
                return None  # it was compacted: the reader asks again
            self._seen, self._log = (file, layout), log
        growing, size = log.end()
        if file == growing:
            return FileExtent(size, None)
        segment = log.segment(file)
        if segment is None:
            return None
        return FileExtent(segment.size, segment.next_offset)

    def sealed(self, seal: Seal) -> SegmentSealed:
        """The segment is sent to its end."""
        return SegmentSealed(seal.handle, seal.file, seal.length, seal.next_file)

    def find_aborted(self, message: FindAborted) -> AbortedFound:
        """What was aborted, as far as this node has it. Raises LogFormatError."""
        log, stop = self.stream.log, message.stop
        first = max(message.first, message.behind + 1)
        found = log.aborted(first, stop, ABORTED_TOLD) if message.first < stop else ()
        told = tuple(
            AbortedPart(each.producer_id, each.first_offset, each.last_offset) for each in found
        )
        return AbortedFound(message.handle, log.last_stable_offset, log.next_offset, told)

    def end(self) -> FilePosition:
        """Where the log ends."""
        return self.stream.log.end()

    def end_offset(self) -> int:
        """The next offset."""
        return self.stream.log.next_offset

    def read(self, file: int, byte: int, limit_bytes: int) -> bytes:
        """Whole batches. Raises LogFormatError."""
        self._read = file
        return self.stream.log.read(file, byte, limit_bytes)

    def read_part(self, file: int, byte: int, size_bytes: int) -> bytes:
        """Bytes of a batch. Raises LogFormatError."""
        return self.stream.log.read_part(file, byte, size_bytes)

    def suspect(self) -> None:
        """What was read last has to be looked over."""
        self.stream.suspect(self._read)


class ServedSession:
    """One run of an input."""

    shows_end = False

    def __init__(self, stream: SessionStream, run: int) -> None:
        self.stream = stream
        self._run = run

    def start(self, message: OpenSessionLog) -> FilePosition:
        """Where DATA starts: where the client's bytes end. Raises RequestRefused."""
        place = message.roll, message.byte
        log = self.stream.log
        if place < log.start(self._run):
            raise _no_longer(place, log.start(self._run))
        if place > self.end():
            raise _behind(place, self.end())
        extent = self.extent(message.roll)
        if message.byte > (0 if extent is None else extent.end):
            raise _fork(message.handle, place)
        if place > log.start(self._run):
            _check_last(self, message, place)
        return place

    def extent(self, file: int) -> FileExtent | None:
        """How far a roll reaches."""
        log = self.stream.log
        sealed = log.sealed_length(self._run, file)
        if sealed is not None:
            return FileExtent(sealed, file + 1)
        roll, byte = log.end(self._run)
        return FileExtent(byte, None) if file == roll else None

    def sealed(self, seal: Seal) -> RollSealed:
        """The roll is sent to its end."""
        return RollSealed(seal.handle, seal.file, seal.length)

    def end(self) -> FilePosition:
        """Where the run ends, for now."""
        return self.stream.log.end(self._run)

    def end_offset(self) -> int:
        """A session log has no offsets."""
        return 0

    def log_start(self) -> tuple[int, int, int]:
        """A session log is not archived."""
        return BEGINNING

    def read(self, file: int, byte: int, limit_bytes: int) -> bytes:
        """Whole batches. Raises LogFormatError."""
        return read_whole(self.stream.log, (self._run, file), byte, limit_bytes)

    def read_part(self, file: int, byte: int, size_bytes: int) -> bytes:
        """Bytes of a batch. Raises LogFormatError."""
        return self.stream.log.read(self._run, file, byte, byte + size_bytes)

    def suspect(self) -> None:
        """Session bytes are checked before they are merged: nothing is to be done."""


def read_whole(log: SessionReading, file: tuple[int, int], byte: int, limit_bytes: int) -> bytes:
    """Whole batches from `byte` of file (run, roll): at most `limit_bytes`, but at least one.

    Nothing where nothing is held. Raises CorruptLog when no batch starts there.
    """
    data = log.read(*file, byte, byte + limit_bytes)
    scan = kernels.scan(data, verify_crc=False, max_batch_bytes=HELD_BATCH_BYTES)
    if scan.short and scan.end == 0:
        size = told_size(log.read(*file, byte, byte + LENGTH_PREFIX_BYTES))
        data = log.read(*file, byte, byte + size)
        scan = kernels.scan(data, verify_crc=False, max_batch_bytes=HELD_BATCH_BYTES)
    if scan.end == 0 and data:
        raise CorruptLog(f"log.{file[0]}.{file[1]}", byte, scan.error or "the batch is cut")
    return data if scan.end == len(data) else data[: scan.end]


def _check_last(served: Served, message: OpenMerged | OpenSessionLog, place: FilePosition) -> None:
    """Both sides must have the same batch before the client's place. Raises ProtocolFault."""
    start, own = message.last_start, None
    if 0 <= start < place[1]:
        own = _batch_at(served, place[0], start)
    check_common(message.handle, place, (start, message.last_crc), own)


def _batch_at(served: Served, file: int, start: int) -> tuple[int, int] | None:
    """(end, crc) of the batch that starts there; None if none does."""
    try:
        data = served.read(file, start, 1)
    except (CorruptLog, NoSuchFile):
        return None
    scan = kernels.scan(data, verify_crc=False, max_batch_bytes=HELD_BATCH_BYTES, max_batches=1)
    return (start + scan.end, scan.last_crc) if scan.batches else None


def _behind(place: FilePosition, end: FilePosition) -> RequestRefused:
    text = f"this node holds up to {end}, you are at {place}"
    return RequestRefused(FaultCode.NOT_READY, text, "retry, or ask another node")


def _no_longer(place: FilePosition, start: FilePosition) -> RequestRefused:
    text = f"bytes at {place} are not held any more; they begin at {start}"
    return RequestRefused(FaultCode.OUT_OF_RANGE, text, "start over from there")


def _fork(handle: int, place: FilePosition) -> RequestRefused:
    text = f"handle {handle}: no batch ends at {place} here"
    return RequestRefused(FaultCode.FORK, text, "compare the logs with samelog verify")
