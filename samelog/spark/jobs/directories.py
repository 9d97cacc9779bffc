"""Directories with merged logs: of nodes, of subscribers, or of what was restored.

Invariant: nothing is written, and nothing a running process says is believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from samelog.format.file_names import LOG
from samelog.spark.jobs.findings import CheckOutcome, LogFinding, Series, VerifyPlan, finding
from samelog.spark.jobs.segment_reads import (
    Read,
    faults_of,
    outcome_of,
    read_segment,
    unreadable,
)
from samelog.store.merged.check import (
    READ_BYTES,
    PartitionCopy,
    find_copies,
    first_difference,
    index_faults,
    rolled_differently,
    segment_path,
    segment_sizes,
)


class DirectorySegment(NamedTuple):
    """A segment's file; `behind`: where the next one begins, None of the newest."""

    series: Series
    copy: PartitionCopy
    base: int
    size: int
    behind: int | None

    def check(self) -> CheckOutcome:
        """Read it, and its indexes."""
        file = segment_path(self.copy, self.base, LOG)
        try:
            read = read_segment(_pieces(file, self.size), self.base)
            findings = tuple(self._findings(file, read))
        except OSError as error:
            return unreadable(self.series, self.base, file, error)
        behind = read.check.segment.next_offset if self.behind is None else self.behind
        return outcome_of(self.series, file, read, behind, findings)

    def _findings(self, file: str, read: Read) -> Iterator[LogFinding]:
        yield from faults_of(self.series, file, read.check)
        for fault in index_faults(self.copy, read.check, is_sealed=self.behind is not None):
            yield finding(self.series, fault.offset, file, wanted=fault.wanted, found=fault.found)
        end = read.check.segment.next_offset
        if read.size < self.size:
            wanted = f"{self.size} bytes, as a moment ago"
            yield finding(self.series, end, file, wanted=wanted, found=f"{read.size}")
        elif read.check.fault is None and self.behind not in {None, end}:
            wanted = f"a file behind it that begins at offset {end}"
            found = f"one that begins at {self.behind}"
            yield finding(
                self.series, min(end, self.behind or end), file, wanted=wanted, found=found
            )


def _pieces(path: str, size: int) -> Iterator[bytes]:
    """The first `size` bytes of a file, which may grow."""
    with open(path, "rb") as file:
        while size > 0 and (data := file.read(min(READ_BYTES, size))):
            size -= len(data)
            yield data


class CommonBytes(NamedTuple):
    """The same segment in two directories, one of which has more of it."""

    series: Series
    path: str
    other: str
    base: int
    size: int

    def check(self) -> CheckOutcome:
        """Compare what both have."""
        try:
            place = first_difference(self.path, self.other, self.size, lambda amount: None)
        except OSError as error:
            return unreadable(self.series, self.base, self.other, error)
        if place is None:
            return CheckOutcome(None)
        wanted, found = f"the bytes of {self.path}", f"others from byte {place} on"
        differs = finding(self.series, self.base, self.other, wanted=wanted, found=found)
        return CheckOutcome(None, (differs,))


def plan_directories(directories: Sequence[str], topics: Sequence[str]) -> VerifyPlan:
    """What there is to check in the directories. Raises OSError, LogFormatError."""
    plan = VerifyPlan()
    copies = [copy for copy in find_copies(directories) if not topics or copy.topic in topics]
    sizes = [segment_sizes(copy) for copy in copies]
    for copy, held in zip(copies, sizes, strict=True):
        _plan_copy(plan, copy, held)
    groups: dict[tuple[str, int], list[tuple[PartitionCopy, dict[int, int]]]] = {}
    for copy, held in zip(copies, sizes, strict=True):
        groups.setdefault((copy.topic_id, copy.partition), []).append((copy, held))
    for group in groups.values():
        _plan_in_common(plan, group)
    return plan


def series_of(copy: PartitionCopy) -> Series:
    """Names the copy, the topic and the partition of a directory."""
    return Series(copy.directory, copy.topic, copy.topic_id, copy.partition)


def _plan_copy(plan: VerifyPlan, copy: PartitionCopy, sizes: dict[int, int]) -> None:
    """Every segment that is not archived; the first one must be where the copy begins."""
    series = series_of(copy)
    bases = [base for base in sizes if base >= copy.start_offset]
    start = copy.start_offset
    while bases and sizes[bases[0]] == 0:
        start = bases.pop(0)
    if bases and bases[0] != start:
        wanted = f"a file that begins at offset {start}, where the copy does"
        file = segment_path(copy, bases[0], LOG)
        plan.findings.append(finding(series, start, file, wanted=wanted, found="none"))
    for base, behind in pairwise([*bases, None]):
        if base is not None and (sizes[base] or behind is not None):
            plan.tasks.append(DirectorySegment(series, copy, base, sizes[base], behind))


def _plan_in_common(
    plan: VerifyPlan, group: Sequence[tuple[PartitionCopy, dict[int, int]]]
) -> None:
    """Segments of which copies have different sizes; equal ones are compared by their SHA-256."""
    longest, theirs = max(group, key=lambda each: max(each[1].items(), default=(0, 0)))
    for copy, sizes in group:
        series = series_of(copy)
        for base, size in sizes.items():
            common = min(size, theirs.get(base, 0))
            if not common or size == theirs[base]:
                continue
            path, other = (segment_path(each, base, LOG) for each in (longest, copy))
            plan.tasks.append(CommonBytes(series, path, other, base, common))
            if rolled_differently(theirs, sizes, base):
                wanted, found = f"{theirs[base]} bytes, as in {path}", str(size)
                plan.findings.append(finding(series, base, other, wanted=wanted, found=found))
