"""Archives: copies of segments that were made before archiving, each with its manifest.

Of Parquet files the bytes are checked against the manifest, and the offsets of rows. `SegmentCheck`
is what all tasks share, wherever the bytes come from.

Invariant: every manifest is looked at, and every file that one names; the chain of manifests of a
partition has no hole.
Also: what cannot be read is a finding; nothing is passed over.
Also: offsets are looked at row by row, and every row's topic and partition.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from samelog.archiver.copies.copying import pieces_of, read_back, read_manifest
from samelog.archiver.copies.manifests import PARQUET, SEGMENTS, CopiedLog, CopyFault, Manifest
from samelog.archiver.copies.targets import Target, open_target, translated_errors
from samelog.format.file_names import segment_bases
from samelog.format.segment_check import SegmentCheck
from samelog.spark.jobs.findings import (
    Checked,
    CheckOutcome,
    Link,
    LogFinding,
    Series,
    VerifyPlan,
    broken_links,
    check_runs,
    finding,
)
from samelog.spark.plan.offsets import Span

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ["topic", "partition", "offset"]


class CopiedRows(NamedTuple):
    """A Parquet file, and what its manifest says of it."""

    series: Series
    url: str
    manifest: Manifest

    @property
    def size(self) -> int:
        """Bytes to read."""
        return self.manifest.files[PARQUET].size

    def check(self) -> CheckOutcome:
        """Read it."""
        manifest = self.manifest
        file = manifest.log.file(PARQUET, manifest.first_offset)
        try:
            return self._check(open_target(self.url), file)
        except CopyFault as error:
            return unreadable(self.series, manifest.first_offset, file, error)

    def _check(self, target: Target, file: str) -> CheckOutcome:
        manifest, wanted = self.manifest, self.manifest.files[PARQUET]
        found = read_back(target, file, lambda count: None)
        if found is None:
            raise CopyFault("it is not there")
        findings: list[LogFinding] = []
        if found != wanted:
            findings.append(
                finding(
                    self.series,
                    manifest.first_offset,
                    file,
                    wanted=f"SHA-256 {wanted.sha256} of {wanted.size} bytes, as its manifest says",
                    found=f"{found.sha256} of {found.size}",
                )
            )
        whole = manifest.first_offset, manifest.next_offset
        rows = Rows(self.series, file, manifest.first_offset, is_damaged=bool(findings))
        with translated_errors(file), target.open(file) as source:
            voids, more = check_runs(self.series, file, rows.runs(source), whole)
        findings += [*rows.findings, *more]
        known = Checked(self.series, file, *whole, found.size, voids=voids)
        known = known._replace(damaged=bool(findings))
        return CheckOutcome(known, tuple(findings))


class Rows:
    """The rows of one file, and what is wrong with them beside their offsets."""

    def __init__(self, series: Series, file: str, first: int, *, is_damaged: bool) -> None:
        """`first`: its first offset; `is_damaged`: its bytes are not what they were, so that all of
        them are looked at.
        """
        self.findings: list[LogFinding] = []
        self._series = series
        self._file = file
        self._columns = None if is_damaged else COLUMNS
        self._behind = first

    def runs(self, source: Any) -> Iterator[Span]:
        """Runs of dense offsets, as far as the file can be read."""
        from pyarrow.parquet import ParquetFile

        try:
            with ParquetFile(source, page_checksum_verification=True) as parquet:
                for number in range(parquet.num_row_groups):
                    yield from self._group(parquet.read_row_group(number, columns=self._columns))
        except (OSError, ValueError, KeyError) as error:
            reason = str(error).partition("\n")[0]
            self._add("a row group that can be read", reason)

    def _group(self, rows: pa.Table) -> Iterator[Span]:
        from pyarrow import compute

        wanted = {"topic": self._series.topic, "partition": self._series.partition}
        for column, value in wanted.items():
            others = compute.unique(rows.column(column)).to_pylist()
            if others not in ([], [value]):
                self._add(f"rows of {column} {value}", f"rows of {others}")
        for run in runs_of(rows.column("offset").combine_chunks()):
            self._behind = run[1]
            yield run

    def _add(self, wanted: str, found: str) -> None:
        self.findings.append(
            finding(self._series, self._behind, self._file, wanted=wanted, found=found)
        )


def runs_of(offsets: pa.Array) -> Iterator[Span]:
    """Offsets of rows, in their order, as runs of dense ones."""
    from pyarrow import compute

    if len(offsets) == 0:
        return
    steps = compute.pairwise_diff(offsets).fill_null(0)  # there is none before the first
    starts = compute.indices_nonzero(compute.not_equal(steps, 1)).to_pylist()
    for start, stop in zip(starts, [*starts[1:], len(offsets)], strict=True):
        yield offsets[start].as_py(), offsets[stop - 1].as_py() + 1


class Read(NamedTuple):
    """A segment's bytes, checked."""

    check: SegmentCheck
    size: int
    sha256: str


def read_segment(pieces: Iterable[bytes], base: int, *, checksum: int = 0) -> Read:
    """Check a segment's bytes, all of which go into the SHA-256, whatever they are."""
    check = SegmentCheck(base, checksum=checksum)
    digest, size = hashlib.sha256(), 0
    for data in pieces:
        check.feed(data)
        digest.update(data)
        size += len(data)
    check.close()
    return Read(check, size, digest.hexdigest())


def faults_of(series: Series, file: str, check: SegmentCheck) -> Iterator[LogFinding]:
    """What was found in the bytes of a segment."""
    if (fault := check.fault) is not None:
        found = f"{fault.found} ({fault.place})"
        yield finding(series, fault.offset, file, wanted=fault.wanted, found=found)


def outcome_of(
    series: Series, file: str, read: Read, behind: int, findings: Iterable[LogFinding]
) -> CheckOutcome:
    """What a segment that should end at `behind` gave."""
    found = tuple(findings)
    base = read.check.segment.base_offset
    known = Checked(series, file, base, behind, read.size, read.sha256)
    known = known._replace(voids=tuple(read.check.voids), damaged=bool(found))
    return CheckOutcome(known, found)


def unreadable(series: Series, offset: int, file: str, error: Exception) -> CheckOutcome:
    """A file that could not be read where the task ran."""
    wanted = "a file that every executor can read"
    found = f"on host {socket.gethostname()}: {error}"
    return CheckOutcome(None, (finding(series, offset, file, wanted=wanted, found=found),))


class CopiedSegment(NamedTuple):
    """A segment in an archive, and what its manifest says of it."""

    series: Series
    url: str
    manifest: Manifest

    @property
    def size(self) -> int:
        """About how many bytes the check reads."""
        return self.manifest.size

    def check(self) -> CheckOutcome:
        """Read and check the copy."""
        manifest = self.manifest
        file = manifest.log.file(SEGMENTS, manifest.first_offset)
        try:
            source = open_target(self.url).open(file)
            if source is None:
                raise CopyFault("it is not there")
            pieces = pieces_of(source, file)
            read = read_segment(pieces, manifest.first_offset, checksum=manifest.begin_checksum)
        except (CopyFault, OSError) as error:
            return unreadable(self.series, manifest.first_offset, file, error)
        findings = self._findings(file, read)
        return outcome_of(self.series, file, read, manifest.next_offset, findings)

    def _findings(self, file: str, read: Read) -> Iterator[LogFinding]:
        yield from faults_of(self.series, file, read.check)
        manifest, check = self.manifest, read.check
        copied = manifest.files[SEGMENTS]
        says = "as its manifest says"
        facts: list[tuple[str, object, object]] = [
            (f"SHA-256 {copied.sha256}, {says}", copied.sha256, read.sha256),
            (f"SHA-256 {manifest.sha256}, {says} of the segment", manifest.sha256, read.sha256),
            (f"{copied.size} bytes, {says}", copied.size, read.size),
            (f"{manifest.size} bytes, {says} of the segment", manifest.size, read.size),
        ]
        if check.fault is None:
            end, total = check.segment.next_offset, check.checksum
            facts += [
                (f"an end at offset {manifest.next_offset}, {says}", manifest.next_offset, end),
                (f"running checksum {manifest.end_checksum}, {says}", manifest.end_checksum, total),
            ]
        for wanted, one, other in facts:
            if one != other:
                yield finding(
                    self.series, manifest.first_offset, file, wanted=wanted, found=str(other)
                )


def plan_archive(url: str, topics: Sequence[str]) -> VerifyPlan:
    """What there is to check in an archive. Raises CopyFault."""
    target, plan = open_target(url), VerifyPlan()
    for place in places(target, topics):
        _plan_partition(plan, target, url, place)
    return plan


def places(target: Target, topics: Sequence[str] = ()) -> Iterator[CopiedLog]:
    """Every partition of which there are manifests, or copies without any. Raises CopyFault."""
    for cluster in target.list(""):
        for topic in topics or target.list(cluster):
            for topic_id in target.list(f"{cluster}/{topic}"):
                whole = f"{cluster}/{topic}/{topic_id}"
                for number in _partitions(target, whole):
                    yield CopiedLog(cluster, topic, topic_id, number)


def _partitions(target: Target, whole: str) -> list[int]:
    names = {*target.list(f"{whole}/manifests"), *target.list(f"{whole}/{SEGMENTS}")}
    names |= {name.partition("-")[0] for name in target.list(f"{whole}/{PARQUET}")}
    return sorted(int(name) for name in names if name.isdecimal())


def _plan_partition(plan: VerifyPlan, target: Target, url: str, place: CopiedLog) -> None:
    manifests = []
    for name in target.list(place.manifests):
        if not name.endswith(".json") or name.startswith("."):
            continue
        file = f"{place.manifests}/{name}"
        try:
            found = read_manifest(target, place, file)
        except CopyFault as fault:
            wanted = "a manifest of a copy"
            offset = int(name[:-5]) if name[:-5].isdecimal() else 0
            series = _series(url, place, "manifests")
            plan.findings.append(finding(series, offset, file, wanted=wanted, found=str(fault)))
            continue
        if found is not None:
            manifests.append(found)
    _plan_manifests(plan, url, place, manifests)
    plan.findings += _without_manifest(target, url, place, manifests)


def _plan_manifests(
    plan: VerifyPlan, url: str, place: CopiedLog, manifests: Sequence[Manifest]
) -> None:
    links = [
        Link(
            place.manifest(each.first_offset),
            each.first_offset,
            each.next_offset,
            each.begin_checksum,
            each.end_checksum,
        )
        for each in manifests
    ]
    plan.findings += broken_links(_series(url, place, "manifests"), links)
    for each in manifests:
        if SEGMENTS in each.files:
            plan.tasks.append(CopiedSegment(_series(url, place, SEGMENTS), url, each))
        if PARQUET in each.files:
            plan.tasks.append(CopiedRows(_series(url, place, PARQUET), url, each))


def _without_manifest(
    target: Target, url: str, place: CopiedLog, manifests: Iterable[Manifest]
) -> Iterator[LogFinding]:
    """Copies of which nobody says what they hold. Copying goes from old to new: behind the last
    manifest there may be one that is being made.
    """
    known = {each.first_offset for each in manifests}
    newest = max(known, default=-1)
    names = target.list(f"{place.directory}/{SEGMENTS}/{place.partition}")
    for base in segment_bases(names):
        if base not in known and base < newest:
            file = place.file(SEGMENTS, base)
            wanted = f"a manifest beside it, {place.manifest(base)}"
            series = _series(url, place, SEGMENTS)
            yield finding(series, base, file, wanted=wanted, found="none")


def _series(url: str, place: CopiedLog, kind: str) -> Series:
    where = f"{url}: {place.cluster}, {kind}"
    return Series(where, place.topic, place.topic_id, place.partition)
