"""Checks copies of merged logs from their files alone: each by itself, then against each other.

By itself: every batch whole with the right CRC, offsets dense from the first one, indexes those
that the log gives. Against each other: byte-identical as far as two copies reach, but where only
one of them was compacted.

Invariant: nothing is written, and nothing a running process says is believed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from samelog.format.compaction import CompactedSegment
from samelog.format.directory_files import PartitionFile
from samelog.format.errors import LogFormatError
from samelog.format.file_names import (
    INDEX,
    LOG,
    PARTITION_FILE,
    TIME_INDEX,
    segment_bases,
    segment_name,
)
from samelog.format.index import OffsetIndex, TimeIndex
from samelog.format.segment_check import SegmentCheck, SegmentFault
from samelog.store.disk.directories import REMOVED_PREFIX
from samelog.store.disk.files import OsFileSystem
from samelog.store.disk.json_files import read_json_file
from samelog.store.merged.generations import read_compacted

READ_BYTES = 8 << 20

Advance = Callable[[int], None]


@dataclass(slots=True)
class PartitionCopy:
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
    compacted: list[CompactedSegment] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The partition's name."""
        return f"{self.topic}-{self.partition}"


def find_copies(directories: Sequence[str]) -> list[PartitionCopy]:
    """Every copy at or below the directories: of nodes, with all data groups that they have, of
    subscribers, or of one partition.
    """
    copies = []
    for directory in directories:
        for place in _partition_directories(directory):
            file = os.path.join(place, PARTITION_FILE)
            known = read_json_file(OsFileSystem(), file, PartitionFile)
            if known is not None:
                whose = known.topic, known.topic_id, known.partition
                copy = PartitionCopy(
                    place, *whose, known.start_offset, checksum=known.start_checksum
                )
                copy.compacted = _compacted_in(place)
                copies.append(copy)
    return copies


def _compacted_in(place: str) -> list[CompactedSegment]:
    return read_compacted(OsFileSystem(), place).segments


def _partition_directories(directory: str) -> Iterator[str]:
    if os.path.exists(os.path.join(directory, PARTITION_FILE)):
        yield directory
        return
    merged = os.path.join(directory, "merged")
    yield from _partitions_in(merged if os.path.isdir(merged) else directory)
    groups = os.path.join(directory, "groups")
    for number in sorted(os.listdir(groups)) if os.path.isdir(groups) else ():
        of_group = os.path.join(groups, number, "merged")
        if os.path.isdir(of_group):
            yield from _partitions_in(of_group)


def _partitions_in(parent: str) -> Iterator[str]:
    for name in sorted(os.listdir(parent)):
        place = os.path.join(parent, name)
        if not name.startswith(REMOVED_PREFIX) and os.path.exists(
            os.path.join(place, PARTITION_FILE)
        ):
            yield place


def segment_sizes(copy: PartitionCopy) -> dict[int, int]:
    """Base offset -> bytes of every segment file."""
    bases = segment_bases(os.listdir(copy.directory))
    return {base: os.path.getsize(segment_path(copy, base, LOG)) for base in bases}


# --- one copy -----------------------------------------------------------------------------------


def check_copy(copy: PartitionCopy, advance: Advance) -> None:
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
        checked = check_file(copy, base, size, advance)
        copy.faults += map(str, index_faults(copy, checked, is_sealed=base != newest))
        copy.end_offset, copy.checksum = checked.segment.next_offset, _running(copy, checked)
        copy.size_bytes += checked.segment.size
        if checked.fault is not None:
            copy.faults.append(str(checked.fault))


def _running(copy: PartitionCopy, checked: SegmentCheck) -> int:
    """The running checksum behind a segment, which is that of the bytes as merged."""
    known = [each for each in copy.compacted if each.base == checked.segment.base_offset]
    if not known:
        return checked.checksum
    if checked.fault is None and checked.checksum != known[0].bytes_checksum:
        copy.faults.append(f"segment {known[0].base} is not the one that was compacted")
    return known[0].sealed.checksum


def check_file(copy: PartitionCopy, base: int, size: int, advance: Advance) -> SegmentCheck:
    """Check the first `size` bytes of a segment's file. Raises OSError."""
    checked = SegmentCheck(base, checksum=copy.checksum)
    with open(segment_path(copy, base, LOG), "rb") as file:
        while size > 0 and (data := file.read(min(READ_BYTES, size))):
            size -= len(data)
            if not checked.feed(data):
                return checked
            advance(len(data))
    if size > 0:
        checked.fail(f"the file has {size} bytes less than a moment ago")
    checked.close()
    return checked


def index_faults(
    copy: PartitionCopy, checked: SegmentCheck, *, is_sealed: bool
) -> list[SegmentFault]:
    """What is wrong with the indexes of a segment that was checked; of one that is damaged nobody
    knows what they should be. Raises OSError.
    """
    if checked.fault is not None:
        return []
    if is_sealed:
        checked.segment.seal(0)  # sealing adds the last entry of the time index
    found = (
        _index_fault(copy, INDEX, checked.segment.offsets),
        _index_fault(copy, TIME_INDEX, checked.segment.times),
    )
    return [fault for fault in found if fault is not None]


def _index_fault(
    copy: PartitionCopy, suffix: str, expected: OffsetIndex | TimeIndex
) -> SegmentFault | None:
    """An index on disk may end early (it is written behind the log), but never differ."""
    base = expected.base_offset
    try:
        with open(segment_path(copy, base, suffix), "rb") as file:
            held = type(expected)(base, file.read())
    except FileNotFoundError:
        return None
    if expected.begins_with(len(held), held.checksum):
        return None
    wanted = f"the {suffix} that the log gives"
    return SegmentFault(
        base, f"segment {base}", wanted, f"{suffix} is not the one that the log gives"
    )


# --- copies against each other ------------------------------------------------------------------


def compare(first: PartitionCopy, second: PartitionCopy, advance: Advance) -> str | None:
    """Where two copies of a partition differ, as far as both reach; None if nowhere."""
    ours, theirs = segment_sizes(first), segment_sizes(second)
    for base, size in ours.items():
        if not is_comparable(first, second, base):
            continue
        common = min(size, theirs.get(base, 0))
        place = first_difference(
            segment_path(first, base, ".log"), segment_path(second, base, ".log"), common, advance
        )
        if place is not None:
            return f"segment {base}, byte {place}"
        if rolled_differently(ours, theirs, base):
            return f"segment {base}, byte {common}: one copy ends there, the other goes on"
    return None


def is_comparable(first: PartitionCopy, second: PartitionCopy, base: int) -> bool:
    """Whether a segment has to be the same in both: not where only one of them was compacted."""
    own, other = (
        [each for each in copy.compacted if each.base <= base < each.stop]
        for copy in (first, second)
    )
    return own == other


def rolled_differently(ours: dict[int, int], theirs: dict[int, int], base: int) -> bool:
    """Whether one copy has begun another segment where the other one has more in this one."""
    one, other = ours.get(base, 0), theirs.get(base, 0)
    if not one or not other:
        return False
    return (one < other and base != max(ours)) or (other < one and base != max(theirs))


def first_difference(one: str, other: str, size: int, advance: Advance) -> int | None:
    """The first of `size` bytes in which two files differ; None if they do not. Raises OSError."""
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


def segment_path(copy: PartitionCopy, base: int, suffix: str) -> str:
    """One of a segment's files."""
    return os.path.join(copy.directory, segment_name(base, suffix))


def check_all(copies: Sequence[PartitionCopy], advance: Advance) -> list[str]:
    """Check all copies, by themselves and against the longest of their partition: what is wrong."""
    faults: list[str] = []
    by_partition: dict[tuple[str, int], list[PartitionCopy]] = {}
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
