"""Logs in an archive: the copies of segments that were made before archiving, read where they are.

A copy counts by its manifest; from its segment, if there is one, else from Parquet.

Invariant: what is read of a range is all that the copies have of it, in order; a hole between
copies is data loss, never passed over in silence.

Rows of one copy have rising offsets; a copy that is shorter than its manifest says, or damaged, is
an error.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any

from samelog.archiver.copies.copying import pieces_of, read_manifest
from samelog.archiver.copies.manifests import PARQUET, SEGMENTS, CopiedLog, CopyFault, Manifest
from samelog.archiver.copies.restoring import find_copied_log, whole_batches
from samelog.archiver.copies.targets import Target, open_target, translated_errors
from samelog.format import _kernels as kernels
from samelog.format.arrow import to_arrow
from samelog.format.errors import LogFormatError
from samelog.spark.errors import DataLoss, NotReadable
from samelog.spark.options import Archive
from samelog.spark.plan.catalogue import Catalogue, OffsetBounds, TopicState
from samelog.spark.plan.offsets import OffsetRange, PartitionName, Span, within

if TYPE_CHECKING:
    import pyarrow as pa

BASE_OFFSET = Struct(">q")
PLACE_COLUMNS = ["offset", "timestamp"]


def tables_of(
    target: Target, manifest: Manifest, wanted: Span, columns: list[str]
) -> Iterator[pa.Table]:
    """The records with offsets [first, behind) of a copy; with at least these columns. Raises
    CopyFault.
    """
    kind = SEGMENTS if SEGMENTS in manifest.files else PARQUET
    if kind not in manifest.files:
        raise CopyFault(f"{manifest.log.manifest(manifest.first_offset)} names no file")
    name = manifest.log.file(kind, manifest.first_offset)
    file = target.open(name)
    if file is None:
        raise CopyFault(f"{name} is not there, but its manifest is")
    with translated_errors(name), file:
        size, said = file.seek(0, 2), manifest.files[kind].size
        if size != said:
            raise CopyFault(f"{name} has {size} bytes, its manifest says {said}")
        file.seek(0)
        tables = (
            _of_segment(file, name, manifest.log, wanted)
            if kind == SEGMENTS
            else _of_parquet(file, wanted, columns)
        )
        for table in tables:
            part = within(table, wanted)
            if part.num_rows:
                yield part


def _of_segment(file: Any, name: str, place: CopiedLog, wanted: Span) -> Iterator[pa.Table]:
    """Unpacks only what may be in the range; there is no index beside a copy."""
    for data in whole_batches(pieces_of(file, name), name):
        first, behind = _extent(data)
        if first >= wanted[1]:
            return
        if behind <= wanted[0]:
            continue
        try:
            yield to_arrow(data, 0, len(data), topic=place.topic, partition=place.partition)
        except LogFormatError as error:
            raise CopyFault(f"{name} is damaged: {error}") from error


def _extent(data: bytes) -> Span:
    """The offsets of whole batches that were copied as they lay behind each other."""
    first: int = BASE_OFFSET.unpack_from(data)[0]
    headers = kernels.batch_headers(data, 0, len(data))
    return first, first + sum(header[2] for header in headers)


def _of_parquet(file: Any, wanted: Span, columns: list[str]) -> Iterator[pa.Table]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file, page_checksum_verification=True) as parquet:
        at = parquet.schema_arrow.get_field_index("offset")
        for number in range(parquet.num_row_groups):
            known = parquet.metadata.row_group(number).column(at).statistics
            if known is not None and not (known.min < wanted[1] and known.max >= wanted[0]):
                continue
            yield parquet.read_row_group(number, columns=[*{*columns, "offset"}])


def first_at(target: Target, manifest: Manifest, timestamp_ms: int) -> int | None:
    """The first offset of a copy with this timestamp or a later one. Raises CopyFault."""
    import pyarrow as pa
    from pyarrow import compute

    whole = manifest.first_offset, manifest.next_offset
    for table in tables_of(target, manifest, whole, PLACE_COLUMNS):
        late = compute.greater_equal(table["timestamp"].cast(pa.int64()), timestamp_ms)
        place = compute.index(late.combine_chunks(), pa.scalar(value=True)).as_py()
        if place >= 0:
            found: int = table["offset"][place].as_py()
            return found
    return None


LOOK_S = 5.0
"""Copies are made seldom, and listing them may be slow."""


class ArchivedLogs:
    """For the driver. Implements catalogue.Logs."""

    def __init__(self, archive: Archive) -> None:
        self._copies = ArchivedCopies(archive)
        self._known: dict[str, TopicState] = {}
        self._next_look_at = float("-inf")

    def names(self) -> list[str]:
        """All topics of which there are copies. Raises NotReadable."""
        return self._copies.topics()

    def topic_states(self, topics: Iterable[str]) -> Catalogue:
        """These topics, as far as they are copied. Raises NotReadable."""
        asked = tuple(topics)
        if time.monotonic() >= self._next_look_at or set(self._known) != set(asked):
            states = {topic: self._copies.topic_state(topic) for topic in asked}
            self._known = {topic: state for topic, state in states.items() if state is not None}
            self._next_look_at = time.monotonic() + LOOK_S
        return self._known

    def offset_at(self, name: PartitionName, timestamp_ms: int) -> int | None:
        """The first offset with this timestamp or a later one; None if there is none."""
        return self._copies.offset_at(name, timestamp_ms)

    def turn(self) -> None:
        """List the archive again at the next call."""
        self._next_look_at = float("-inf")

    def close(self) -> None:
        """Nothing stays open."""


class ArchivedCopies:
    """The manifests of an archive, each read once."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._manifests: dict[tuple[CopiedLog, int], Manifest] = {}
        try:
            self._target: Target = open_target(archive.url)
        except CopyFault as fault:
            raise NotReadable(f"the archive {archive.url} cannot be read: {fault}") from fault

    def topics(self) -> list[str]:
        """All that have copies. Raises NotReadable."""
        chosen = self._archive.cluster
        try:
            clusters = self._target.list("") if chosen is None else [chosen]
            return sorted({name for cluster in clusters for name in self._target.list(cluster)})
        except CopyFault as fault:
            raise NotReadable(f"the archive {self._archive.url}: {fault}") from fault

    def topic_state(self, topic: str) -> TopicState | None:
        """What there is of a topic; None if nothing is. Raises NotReadable."""
        try:
            bounds = {}
            topic_ids = set()
            for number in self._partitions(topic):
                place = self._place(PartitionName(topic, number))
                bounds[number] = self._bounds(place)
                topic_ids.add(place.topic_id)
        except CopyFault as fault:
            raise NotReadable(self._explained(topic, fault)) from fault
        if len(topic_ids) > 1:
            both = ", ".join(sorted(topic_ids))
            raise NotReadable(self._explained(topic, f"its copies are of several logs, {both}"))
        return TopicState(topic_ids.pop(), bounds) if topic_ids else None

    def _explained(self, topic: str, fault: object) -> str:
        return (
            f"{topic}: the archive {self._archive.url} cannot be read: {fault} (name one log with "
            "archiveCluster and archiveLog, if there are several; what is damaged "
            "`samelog spark verify --archive` names)"
        )

    def _partitions(self, topic: str) -> list[int]:
        clusters, found = self._archive.cluster, set()
        for cluster in self._target.list("") if clusters is None else [clusters]:
            chosen = self._archive.log
            for log in self._target.list(f"{cluster}/{topic}") if chosen is None else [chosen]:
                found |= set(self._target.list(f"{cluster}/{topic}/{log}/manifests"))
        return sorted(int(name) for name in found if name.isdecimal())

    def _place(self, name: PartitionName) -> CopiedLog:
        """Whose copies. Raises CopyFault."""
        archive = self._archive
        return find_copied_log(self._target, *name, cluster=archive.cluster, log_id=archive.log)

    def _bases(self, place: CopiedLog) -> list[int]:
        """First offsets of the copies, by the names of their manifests. Raises CopyFault."""
        names = self._target.list(place.manifests)
        return [int(name[:-5]) for name in names if name.endswith(".json") and name[0] != "."]

    def _manifest(self, place: CopiedLog, base: int) -> Manifest:
        found = self._manifests.get((place, base))
        if found is None:
            read = read_manifest(self._target, place, place.manifest(base))
            if read is None:
                raise CopyFault(f"{place.manifest(base)} is gone")
            found = self._manifests[place, base] = read
        return found

    def _bounds(self, place: CopiedLog) -> OffsetBounds:
        bases = self._bases(place)
        last = self._manifest(place, bases[-1])
        count = last.next_offset - last.first_offset
        return OffsetBounds(bases[0], last.next_offset, last.size / count if count else 0.0)

    def offset_at(self, name: PartitionName, timestamp_ms: int) -> int | None:
        """The first offset with this timestamp or a later one. Raises NotReadable."""
        try:
            place = self._place(name)
            for base in self._bases(place):
                manifest = self._manifest(place, base)
                if manifest.last_ms >= timestamp_ms:
                    found = first_at(self._target, manifest, timestamp_ms)
                    if found is not None:
                        return found
        except CopyFault as fault:
            raise NotReadable(self._explained(str(name), fault)) from fault
        return None

    def read(self, wanted: OffsetRange, columns: list[str]) -> Iterator[pa.Table]:
        """The records of a range, with at least these columns. Raises NotReadable, DataLoss."""
        try:
            place = self._place(wanted.name)
            if place.topic_id != wanted.topic_id:
                raise CopyFault(f"its log is {place.topic_id}, wanted is {wanted.topic_id}")
            yield from self._read(place, wanted, columns)
        except CopyFault as fault:
            raise NotReadable(self._explained(str(wanted), fault)) from fault

    def _read(
        self, place: CopiedLog, wanted: OffsetRange, columns: list[str]
    ) -> Iterator[pa.Table]:
        bases, position = self._bases(place), wanted.start
        while position < wanted.end:
            at = bisect_right(bases, position) - 1
            manifest = None if at < 0 else self._manifest(place, bases[at])
            if manifest is None or manifest.next_offset <= position:
                raise _not_copied(wanted, position, bases[at + 1 :])
            end = min(wanted.end, manifest.next_offset)
            yield from tables_of(self._target, manifest, (position, end), columns)
            position = end


def _not_copied(wanted: OffsetRange, position: int, later: list[int]) -> DataLoss:
    """The error of a range of which something has no copy."""
    earliest = later[0] if later else wanted.end
    lost = f"offsets {position} to {min(earliest, wanted.end) - 1}"
    return DataLoss(
        f"{wanted.name}: wanted are [{wanted.start}, {wanted.end}), but the archive has no copy of "
        f"{lost} (set failOnDataLoss to false to go on behind them)",
        earliest,
    )


def read_archived(
    archive: Archive, wanted: OffsetRange, columns: list[str], *, may_skip: bool
) -> Iterator[pa.Table]:
    """The records of a range. `may_skip`: what has no copy is left out, instead of being an error.

    Raises:
        NotReadable: a copy cannot be read.
        DataLoss: there is none of some of it.
    """
    copies, position = ArchivedCopies(archive), wanted.start
    while position < wanted.end:
        try:
            yield from copies.read(wanted._replace(start=position), columns)
        except DataLoss as lost:
            if not may_skip or lost.earliest is None:
                raise
            # what came before the hole was yielded: the hole begins behind it
            position = max(position, lost.earliest)
        else:
            position = wanted.end
