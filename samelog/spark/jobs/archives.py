"""Archives: copies of segments that were made before archiving, each with its manifest.

Invariant: every manifest is looked at, and every file that one names; the chain of manifests of a
partition has no hole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from samelog.archiver.copies.copying import pieces_of, read_manifest
from samelog.archiver.copies.manifests import PARQUET, SEGMENTS, CopiedLog, CopyFault, Manifest
from samelog.archiver.copies.targets import Target, open_target
from samelog.format.file_names import segment_bases
from samelog.spark.jobs.copied_rows import CopiedRows
from samelog.spark.jobs.findings import (
    CheckOutcome,
    Link,
    LogFinding,
    Series,
    VerifyPlan,
    broken_links,
    finding,
)
from samelog.spark.jobs.segment_reads import (
    Read,
    faults_of,
    outcome_of,
    read_segment,
    unreadable,
)


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
