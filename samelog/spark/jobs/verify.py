"""Verifies whole archives in parallel: every file is read once, by some task of a Spark job.

What it re-uses is what `samelog verify` does to one segment; what lies between files is looked at
when all tasks are done. Invariant: what was planned was checked, or the job fails.

What is verified are directories with merged logs (of nodes, of subscribers, or of what was
restored), archives, or a live cluster: what each of its nodes gives, against what the cluster's
history says. Every node is asked by itself, for every file that is not archived.

Invariant: nothing is written, and nothing a running process says is believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

from samelog.admin.answers import LogFile
from samelog.admin.client import log_history
from samelog.config.load import load_client
from samelog.config.tables.client import ClientConfig
from samelog.format import _kernels as kernels
from samelog.format.file_names import LOG, segment_name
from samelog.spark.errors import NotHere, SourceError
from samelog.spark.jobs.archives import (
    Read,
    faults_of,
    outcome_of,
    plan_archive,
    read_segment,
    unreadable,
)
from samelog.spark.jobs.findings import (
    Check,
    CheckOutcome,
    Link,
    LogFinding,
    Series,
    VerifyPlan,
    VerifyReport,
    broken_links,
    deal,
    finding,
    report,
)
from samelog.spark.logs.nodes import Nodes, RemoteLogs
from samelog.spark.plan.catalogue import OffsetBounds, TopicState
from samelog.spark.plan.offsets import OffsetRange, PartitionName
from samelog.store.merged.check import (
    READ_BYTES,
    PartitionCopy,
    find_copies,
    first_difference,
    index_faults,
    is_comparable,
    rolled_differently,
    segment_path,
    segment_sizes,
)
from samelog.subscriber.tail_reader import Chunk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
            if not common or size == theirs[base] or not is_comparable(longest, copy, base):
                continue
            path, other = (segment_path(each, base, LOG) for each in (longest, copy))
            plan.tasks.append(CommonBytes(series, path, other, base, common))
            if rolled_differently(theirs, sizes, base):
                wanted, found = f"{theirs[base]} bytes, as in {path}", str(size)
                plan.findings.append(finding(series, base, other, wanted=wanted, found=found))


TIMEOUT_S = 30.0


class NodeFile(NamedTuple):
    """A file's offsets [first, behind) at one node. `sha256`: of its bytes, empty where it is not
    known; `size`: about so many.
    """

    series: Series
    config: str
    node: int
    first: int
    behind: int
    size: int
    sha256: str

    def check(self) -> CheckOutcome:
        """Fetch it."""
        file = segment_name(self.first, LOG)
        whose = self.series
        wanted = OffsetRange(
            PartitionName(whose.topic, whose.partition), whose.topic_id, self.first, self.behind
        )
        try:
            with closing(Nodes(self.config, timeout_s=TIMEOUT_S, only=self.node)) as node:
                read = _read(node.read(wanted), wanted)
        except NotHere:
            return CheckOutcome(None)
        except SourceError as error:
            return unreadable(whose, self.first, file, error)
        return outcome_of(whose, file, read, self.behind, self._findings(file, read))

    def _findings(self, file: str, read: Read) -> Iterator[LogFinding]:
        yield from faults_of(self.series, file, read.check)
        if self.sha256 and self.sha256 != read.sha256:
            wanted = f"SHA-256 {self.sha256}, as the cluster's log-history says"
            yield finding(self.series, self.first, file, wanted=wanted, found=read.sha256)


def _read(chunks: Iterator[Chunk], wanted: OffsetRange) -> Read:
    """Check a range; its first batch may begin before it, where records were deleted."""
    pieces = _within(chunks, wanted)
    first = next(pieces, b"")
    base = int.from_bytes(first[:8], "big") if first else wanted.start
    return read_segment(chain([first], pieces), min(base, wanted.start))


def _within(chunks: Iterator[Chunk], wanted: OffsetRange) -> Iterator[bytes]:
    """The bytes of the batches in a range, whose ends are borders of batches."""
    for chunk in chunks:
        data, offset, start, stop = chunk.data, chunk.first_offset, 0, chunk.size
        for header in kernels.batch_headers(data, 0, chunk.size):
            if offset >= wanted.end:
                stop = header[0]
                break
            offset += header[2]
            if offset <= wanted.start:
                start = header[0] + header[1]
        yield data[start:stop]


def plan_cluster(path: str, topics: Sequence[str]) -> VerifyPlan:
    """What there is to check of these topics, or all of them, at the nodes. Raises SourceError,
    AdminError.
    """
    config, plan = load_client(path), VerifyPlan()
    with closing(RemoteLogs(Nodes(path, timeout_s=TIMEOUT_S))) as logs:
        found = logs.topic_states(topics or logs.names())
        missing = sorted(set(topics) - set(found))
        if missing:
            raise SourceError(f"there is no topic {', '.join(missing)} in {config.cluster}")
        for topic, state in found.items():
            files = list(log_history(config, topic))
            if not files:
                continue  # nothing is written in it, or it is a view, which stores nothing
            for partition, bounds in state.partitions.items():
                held = [file for file in files if file.partition == partition]
                _plan_partition(plan, (path, config), _of(topic, partition, state), bounds, held)
    return plan


def _piece(file: LogFile, start: int) -> tuple[int, int, int, str]:
    """What can be read of a file: (first offset, next one, bytes, SHA-256 if it is the whole)."""
    if file.first_offset < start:
        return start, file.next_offset, file.size_bytes, ""
    return file.first_offset, file.next_offset, file.size_bytes, file.sha256


def _of(topic: str, partition: int, state: TopicState) -> Series:
    return Series("", topic, state.topic_id, partition)


def _plan_partition(
    plan: VerifyPlan,
    client: tuple[str, ClientConfig],
    series: Series,
    bounds: OffsetBounds,
    files: Sequence[LogFile],
) -> None:
    """Every file that can be read whole, and what is behind the last sealed one."""
    sealed = [file for file in files if file.rolled_ms >= 0 and file.next_offset <= bounds.end]
    links = [
        Link(segment_name(file.first_offset, LOG), file.first_offset, file.next_offset)
        for file in sealed
    ]
    whole = series._replace(where="log-history")
    plan.findings += broken_links(whole, links)
    pieces = [
        _piece(file, bounds.start)
        for file in sealed
        if file.archived_ms < 0 and file.next_offset > bounds.start
    ]
    begin = max([bounds.start, *(file.next_offset for file in sealed)])
    if begin < bounds.end:
        size = int((bounds.end - begin) * (bounds.record_bytes or 1))
        pieces.append((begin, bounds.end, size, ""))
    path, config = client
    for number, address in enumerate(config.nodes):
        name = config.node_names[number] if config.node_names else str(address)
        for first, behind, size, sha256 in pieces:
            at = series._replace(where=f"node {name}")
            plan.tasks.append(NodeFile(at, path, number, first, behind, size, sha256))


SHARES_PER_CORE = 8
"""More than one, so that whoever is slow has fewer."""


@dataclass(frozen=True)
class VerifyTargets:
    """What is to be verified: directories with merged logs, archives (URLs or directories), and
    clusters (paths of client.toml); of all topics, or of some.
    """

    directories: Sequence[str] = ()
    archives: Sequence[str] = ()
    clusters: Sequence[str] = ()
    topics: Sequence[str] = ()


def plan(places: VerifyTargets) -> VerifyPlan:
    """All there is to check. Raises CopyFault, SourceError, AdminError, LogFormatError, OSError."""
    plans = [plan_archive(url, places.topics) for url in places.archives]
    plans += [plan_cluster(path, places.topics) for path in places.clusters]
    if places.directories:
        plans.append(plan_directories(places.directories, places.topics))
    whole = VerifyPlan()
    for each in plans:
        whole.tasks += each.tasks
        whole.findings += each.findings
    return whole


def verify(spark: SparkSession, places: VerifyTargets) -> VerifyReport:
    """Check everything at these places. Raises as `plan`."""
    planned = plan(places)
    if not planned.tasks:
        return report([], planned.findings)
    context = spark.sparkContext
    shares = deal(planned.tasks, context.defaultParallelism * SHARES_PER_CORE)
    outcomes = context.parallelize(shares, len(shares)).flatMap(check_all).collect()
    return report(outcomes, planned.findings)


def check_all(share: Iterable[Check]) -> Iterator[CheckOutcome]:
    """A task of Spark."""
    return (each.check() for each in share)
