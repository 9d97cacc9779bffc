"""What a check of an archive finds, and what follows from the parts that tasks have checked.

A task checks one file; here its borders to the next one, and to other copies of it, are looked at.
Invariant: a hole, a double or a difference is found wherever it lies, also between two tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol

from samelog.spark.plan.offsets import Span


class Series(NamedTuple):
    """One copy of one partition. `where`: a directory, an archive and a format in it, or a node."""

    where: str
    topic: str
    topic_id: str
    partition: int


class LogFinding(NamedTuple):
    """Something that is wrong, at or behind an offset."""

    topic: str
    partition: int
    offset: int
    file: str
    wanted: str
    found: str

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}, offset {self.offset}, {self.file}"
        return f"{place}: wanted is {self.wanted}, found is {self.found}"


class Checked(NamedTuple):
    """A file that was read: it holds offsets [first, behind), `size` bytes. `sha256`: of its
    records' batches, empty where they are not there as such; `voids`: offsets without a record;
    `damaged`: something was found, and nothing is compared with it.
    """

    series: Series
    file: str
    first: int
    behind: int
    size: int
    sha256: str = ""
    voids: tuple[Span, ...] = ()
    damaged: bool = False


class CheckOutcome(NamedTuple):
    """What became of one task's file."""

    checked: Checked | None
    findings: tuple[LogFinding, ...] = ()


def finding(series: Series, offset: int, file: str, *, wanted: str, found: str) -> LogFinding:
    """Something wrong in a copy of a partition."""
    return LogFinding(series.topic, series.partition, offset, file, wanted, found)


# --- one file behind the other --------------------------------------------------------------------


class Link(NamedTuple):
    """A file in its chain: what it says of itself, and the running checksums around it, where those
    are known.
    """

    file: str
    first_offset: int
    next_offset: int
    begin_checksum: int | None = None
    end_checksum: int | None = None


def broken_links(series: Series, links: Sequence[Link]) -> list[LogFinding]:
    """Where files of a partition, in order of offsets, leave a hole or overlap."""
    found = []
    for before, after in pairwise(links):
        wanted = f"a file that begins at offset {before.next_offset}, behind {before.file}"
        if after.first_offset > before.next_offset:
            told = f"a hole of {after.first_offset - before.next_offset} offsets"
        elif after.first_offset < before.next_offset:
            told = f"{before.next_offset - after.first_offset} offsets that are there twice"
        elif before.end_checksum != after.begin_checksum:
            wanted = f"the running checksum {before.end_checksum}, as at the end of {before.file}"
            told = f"{after.begin_checksum}"
        else:
            continue
        at = min(before.next_offset, after.first_offset)
        found.append(finding(series, at, after.file, wanted=wanted, found=told))
    return found


# --- the rows of one file -------------------------------------------------------------------------


def check_runs(
    series: Series, file: str, runs: Iterable[Span], whole: Span
) -> tuple[tuple[Span, ...], list[LogFinding]]:
    """Runs of dense offsets as a file has them, against those it should have: the offsets that have
    no row, and rows that are there twice, out of order, or of elsewhere.
    """
    gaps: list[Span] = []
    found: list[LogFinding] = []
    position, behind = whole
    for first, stop in runs:
        if first > position:
            gaps.append((position, min(first, behind)))
        if first < position:
            wanted = f"offset {position} or a later one"
            told = f"offset {first}: a row that is there twice, or out of order"
            found.append(finding(series, first, file, wanted=wanted, found=told))
        if stop > behind:
            told = f"offset {stop - 1}"
            wanted = f"offsets below {behind}"
            found.append(finding(series, max(first, behind), file, wanted=wanted, found=told))
        position = max(position, stop)
    if position < behind:
        gaps.append((position, behind))
    return tuple(gap for gap in gaps if gap[0] < gap[1]), found


# --- copies against each other --------------------------------------------------------------------


def compare(checked: Sequence[Checked]) -> list[LogFinding]:
    """Where copies of the same offsets differ: in their bytes, or in which offsets have records."""
    found: list[LogFinding] = []
    for group in _same_offsets(checked):
        batches = [each for each in group if each.sha256]
        others = (each for each in batches[1:] if each.sha256 != batches[0].sha256)
        found += [_difference(batches[0], other) for other in others]
        found += _lost_rows(batches, [each for each in group if not each.sha256])
    return found


def _same_offsets(checked: Sequence[Checked]) -> Iterator[list[Checked]]:
    groups: dict[tuple[str, int, int, int], list[Checked]] = {}
    for each in checked:
        if each.damaged:
            continue
        key = each.series.topic_id, each.series.partition, each.first, each.behind
        groups.setdefault(key, []).append(each)
    yield from groups.values()


def _difference(one: Checked, other: Checked) -> LogFinding:
    return finding(
        other.series,
        other.first,
        other.file,
        wanted=f"the bytes of {one.file}, SHA-256 {one.sha256}",
        found=f"SHA-256 {other.sha256}",
    )


def _lost_rows(batches: Sequence[Checked], rows: Sequence[Checked]) -> Iterator[LogFinding]:
    """Only batches can say that offsets never had a record."""
    for each in rows:
        known = batches[0].voids if batches else ()
        for first, behind in each.voids:
            if not any(start <= first and behind <= stop for start, stop in known):
                wanted = "a row for each offset"
                told = f"no row for offsets {first} to {behind - 1}"
                if not batches:
                    told += " (lost, or void in the log: there are no segments to tell from)"
                yield finding(each.series, first, each.file, wanted=wanted, found=told)


# --- the whole ------------------------------------------------------------------------------------


class Coverage(NamedTuple):
    """What was checked of one copy of one partition."""

    series: Series
    files: int
    first: int
    behind: int
    size: int


class VerifyReport(NamedTuple):
    """Everything: `findings` in order of topic, partition and offset."""

    checked: tuple[Coverage, ...]
    findings: tuple[LogFinding, ...]


def report(outcomes: Iterable[CheckOutcome], planned: Iterable[LogFinding]) -> VerifyReport:
    """What tasks have found, what their plan had found already, and what follows from both."""
    checked, found = [], list(planned)
    for outcome in outcomes:
        found += outcome.findings
        if outcome.checked is not None:
            checked.append(outcome.checked)
    found += compare(sorted(checked))
    return VerifyReport(tuple(_coverage(checked)), tuple(sorted(set(found))))


def _coverage(checked: Iterable[Checked]) -> Iterator[Coverage]:
    by_series: dict[Series, list[Checked]] = {}
    for each in checked:
        by_series.setdefault(each.series, []).append(each)
    for series in sorted(by_series):
        files = by_series[series]
        first, behind = min(each.first for each in files), max(each.behind for each in files)
        yield Coverage(series, len(files), first, behind, sum(each.size for each in files))


# --- what is to be checked ------------------------------------------------------------------------


class Check(Protocol):
    """One task; it is pickled, so it holds names, not open files."""

    @property
    def size(self) -> int:
        """About how many bytes the check reads."""

    def check(self) -> CheckOutcome:
        """Run the check on an executor."""


@dataclass(slots=True)
class VerifyPlan:
    """The checks of a job, and the findings so far."""

    tasks: list[Check] = field(default_factory=list)
    findings: list[LogFinding] = field(default_factory=list)


def deal(tasks: list[Check], count: int) -> list[list[Check]]:
    """The tasks in at most `count` shares of about as many bytes."""
    shares: list[list[Check]] = [[] for _ in range(max(1, min(count, len(tasks))))]
    sizes = [0] * len(shares)
    for task in sorted(tasks, key=lambda task: -task.size):
        least = sizes.index(min(sizes))
        shares[least].append(task)
        sizes[least] += task.size
    return shares
