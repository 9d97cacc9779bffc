"""Checks copies of merged logs from their files alone: each by itself, then against each other.

By itself: every batch whole with the right CRC, offsets dense from the first one, indexes those
that the log gives. Against each other: byte-identical as far as two copies reach.

Invariant: nothing is written, and nothing a running process says is believed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from shiplog.logformat import _kernels as kernels
from shiplog.logformat.errors import CorruptBatch, LogFormatError
from shiplog.logformat.files import OsFileSystem
from shiplog.logformat.index import OffsetIndex, TimeIndex
from shiplog.logformat.json_files import read_json_file
from shiplog.logformat.merged_log import PartitionFile
from shiplog.logformat.merged_names import PARTITION_FILE
from shiplog.logformat.segment import GrowingSegment

READ_BYTES = 8 << 20
BATCH_LIMIT_BYTES = 8 << 20

Advance = Callable[[int], None]


@dataclass(slots=True)
class Copy:
    """One copy of one partition, and what is wrong with it."""

    directory: str
    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int = 0
    size_bytes: int = 0
    checksum: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The partition's name."""
        return f"{self.topic}-{self.partition}"


def find_copies(directories: Sequence[str]) -> list[Copy]:
    """Every copy at or below the directories: of nodes, of subscribers, or of one partition."""
    copies = []
    for directory in directories:
        for place in _partition_directories(directory):
            file = os.path.join(place, PARTITION_FILE)
            known = read_json_file(OsFileSystem(), file, PartitionFile)
            if known is not None:
                whose = known.topic, known.topic_id, known.partition
                copies.append(
                    Copy(place, *whose, known.start_offset, checksum=known.start_checksum)
                )
    return copies


def _partition_directories(directory: str) -> Iterator[str]:
    if os.path.exists(os.path.join(directory, PARTITION_FILE)):
        yield directory
        return
    merged = os.path.join(directory, "merged")
    parent = merged if os.path.isdir(merged) else directory
    for name in sorted(os.listdir(parent)):
        place = os.path.join(parent, name)
        if os.path.exists(os.path.join(place, PARTITION_FILE)):
            yield place


def segment_sizes(copy: Copy) -> dict[int, int]:
    """Base offset -> bytes of every segment file."""
    names = (name for name in os.listdir(copy.directory) if name.endswith(".log"))
    paths = {int(name[:-4]): os.path.join(copy.directory, name) for name in names}
    return {base: os.path.getsize(paths[base]) for base in sorted(paths)}


# --- one copy -----------------------------------------------------------------------------------


def check_copy(copy: Copy, advance: Advance) -> None:
    """Check one copy by itself; faults are added to it."""
    copy.end_offset = copy.start_offset
    sizes = segment_sizes(copy)
    newest = max(sizes, default=0)
    for base, size in sizes.items():
        if base < copy.start_offset:
            continue  # archived
        if size == 0:
            copy.end_offset = max(copy.end_offset, base)
            continue
        if base != copy.end_offset:
            copy.faults.append(f"segment {base} follows offset {copy.end_offset}")
        segment = _check_segment(copy, base, size, advance)
        if base != newest:
            segment.seal(0)  # sealing adds the last entry of the time index
        _check_index(copy, ".index", segment.offsets)
        _check_index(copy, ".timeindex", segment.times)


def _check_segment(copy: Copy, base: int, size: int, advance: Advance) -> GrowingSegment:
    segment = GrowingSegment(base)
    with open(_path(copy, base, ".log"), "rb") as file:
        while segment.size < size:
            file.seek(segment.size)
            data = file.read(min(READ_BYTES, size - segment.size))
            scan = kernels.scan(data, max_batch_bytes=BATCH_LIMIT_BYTES)
            if scan.end == 0:
                reason = scan.error or "the last batch is cut"
                copy.faults.append(f"segment {base}, byte {segment.size}: {reason}")
                break
            if not _grow(copy, segment, data[: scan.end]):
                break
            advance(scan.end)
    copy.end_offset = segment.next_offset
    copy.size_bytes += segment.size
    return segment


def _grow(copy: Copy, segment: GrowingSegment, data: bytes) -> bool:
    try:
        segment.grow(data, segment.measure(data, len(data)))
    except CorruptBatch as error:
        copy.faults.append(f"segment {segment.base_offset}, from byte {segment.size}: {error}")
        return False
    copy.checksum = kernels.crc32c(data, copy.checksum)
    return True


def _check_index(copy: Copy, suffix: str, expected: OffsetIndex | TimeIndex) -> None:
    """An index on disk may end early (it is written behind the log), but never differ."""
    base = expected.base_offset
    try:
        with open(_path(copy, base, suffix), "rb") as file:
            held = type(expected)(base, file.read())
    except FileNotFoundError:
        return
    if not expected.begins_with(len(held), held.checksum):
        copy.faults.append(f"segment {base}: {suffix} is not the one that the log gives")


# --- copies against each other ------------------------------------------------------------------


def compare(first: Copy, second: Copy, advance: Advance) -> str | None:
    """Where two copies of a partition differ, as far as both reach; None if nowhere."""
    theirs = segment_sizes(second)
    for base, size in segment_sizes(first).items():
        common = min(size, theirs.get(base, 0))
        place = _first_difference(
            _path(first, base, ".log"), _path(second, base, ".log"), common, advance
        )
        if place is not None:
            return f"segment {base}, byte {place}"
    return None


def _first_difference(one: str, other: str, size: int, advance: Advance) -> int | None:
    if size == 0:
        return None
    with open(one, "rb") as left, open(other, "rb") as right:
        done = 0
        while done < size:
            want = min(READ_BYTES, size - done)
            ours, theirs = left.read(want), right.read(want)
            if ours != theirs:
                pairs = zip(ours, theirs, strict=False)
                return done + next((n for n, (a, b) in enumerate(pairs) if a != b), 0)
            done += want
            advance(want)
    return None


def _path(copy: Copy, base: int, suffix: str) -> str:
    return os.path.join(copy.directory, f"{base:020d}{suffix}")


def check_all(copies: Sequence[Copy], advance: Advance) -> list[str]:
    """Check all copies, by themselves and against the longest of their partition: what is wrong."""
    faults: list[str] = []
    by_partition: dict[tuple[str, int], list[Copy]] = {}
    for copy in copies:
        try:
            check_copy(copy, advance)
        except (LogFormatError, OSError) as error:
            copy.faults.append(str(error))
        faults.extend(f"{copy.directory}: {fault}" for fault in copy.faults)
        by_partition.setdefault((copy.topic_id, copy.partition), []).append(copy)
    for group in by_partition.values():
        longest = max(group, key=lambda copy: (copy.end_offset, -copy.start_offset))
        for other in group:
            place = None if other is longest else compare(longest, other, advance)
            if place is not None:
                faults.append(f"{longest.directory} and {other.directory} differ at {place}")
    return faults
