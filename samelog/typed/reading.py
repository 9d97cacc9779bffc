"""Records of any age as rows of one version of their topic's schema.

A record is read by the version that it was written with, and then resolved. Invariant: a record
gives its rows, in order, or is named with the reason why not; nothing is left out in silence
(docs/typed.md, T10, T11, T24).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from samelog.typed.arrow_types import arrow_schema, import_arrow
from samelog.typed.framing import FramedRows, SchemaIds, framed_by
from samelog.typed.misfits import Misfit, beginning
from samelog.typed.resolution import Resolution, Unresolvable
from samelog.typed.schema import Schema, SchemaFormat
from samelog.typed.values.codec import DecodedValues, reading_schema
from samelog.typed.values.codecs import codec_of
from samelog.typed.versions import (
    FOREIGN,
    SCHEMA_HEADER,
    Since,
    marked_version,
    number_in,
    version_at,
)

if TYPE_CHECKING:
    import pyarrow as pa

UNREAD_HEADER = "samelog.unread"
"""Why a record could not be read, which a node has passed on as it is."""
NO_VALUE = -1
"""Of a record whose value is null: nothing was written, with whatever version."""
FRAMED = -2
"""Of one whose value says which schema of a registry wrote it."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A record that cannot be read as the reader's version. The misfit's index is that of the
    record among those that were given.
    """

    offset: int
    version: int
    reader: int
    misfit: Misfit

    def __str__(self) -> str:
        written = f"written with version {self.version}" if self.version > 0 else "marked wrongly"
        if self.version == FRAMED:
            written = "written with a schema of the registry"
        if self.version == FOREIGN:
            written = "written with a schema that this topic does not have"
        return f"offset {self.offset}, {written}, read with version {self.reader}: {self.misfit}"


@dataclass(frozen=True, slots=True)
class TypedRows:
    """`table` has the rows of what could be read; `sources` says which record each is of."""

    table: pa.Table
    sources: Sequence[int]
    unread: list[Unread]


class TypedReader:
    """Reads records of one topic as one version of its schema."""

    def __init__(
        self, schemas: Mapping[int, Schema], version: int, ids: SchemaIds | None = None
    ) -> None:
        """`ids`: the registry of what is in Confluent's wire format; None: nothing is."""
        self._schemas, self._version = schemas, version
        self._reader = schemas[version]
        self._frames = None if ids is None else FramedRows(ids, self._reader)
        self._resolutions: dict[int, Resolution | Unresolvable] = {}

    def read(self, records: pa.Table, since: Since) -> TypedRows:
        """The rows of one partition's records; its columns: see `Subscriber.arrow_records`."""
        values: list[bytes | None] = records.column("value").to_pylist()
        offsets: list[int] = records.column("offset").to_pylist()
        together = self._together(records, values, offsets, since)
        parts, unread = [], []
        for version, places in together.items():
            is_all = len(places) == len(values)
            decoded = self._decode(
                version, values if is_all else [values[place] for place in places]
            )
            parts.append(_placed(decoded, places))
            for misfit in decoded.misfits:
                place = places[misfit.index]
                found = replace(misfit, index=place)
                unread.append(Unread(offsets[place], version, self._version, found))
        table, sources = _in_order(reading_schema(self._reader), parts)
        return TypedRows(table, sources, sorted(unread, key=lambda each: each.offset))

    # --- versions ------------------------------------------------------------------------------

    def _together(
        self,
        records: pa.Table,
        values: Sequence[bytes | None],
        offsets: Sequence[int],
        since: Since,
    ) -> Mapping[int, Sequence[int]]:
        """Which records have each version. Mostly nobody has marked any, and all have the same."""
        marks = self._marks(records)
        is_plain = self._frames is None and not marks
        if offsets and is_plain and not records.column("value").null_count:
            first, last = version_at(since, offsets[0]), version_at(since, offsets[-1])
            schema = self._schemas.get(first)
            is_told = schema is not None and schema.format is not SchemaFormat.ARROW
            if first == last and is_told:
                return {first: range(len(values))}
        together: dict[int, list[int]] = {}
        for place, version in enumerate(self._versions(marks, values, offsets, since)):
            together.setdefault(version, []).append(place)
        return together

    def _marks(self, records: pa.Table) -> dict[int, int]:
        """Record -> the version that its mark says."""
        found = marks_of(records)
        versions = {each: marked_version(each, self._schemas) for each in set(found.values())}
        return {place: versions[value] for place, value in found.items()}

    def _versions(
        self,
        marks: Mapping[int, int],
        values: Sequence[bytes | None],
        offsets: Sequence[int],
        since: Since,
    ) -> list[int]:
        found = []
        for place, (value, offset) in enumerate(zip(values, offsets, strict=True)):
            if value is None:
                found.append(NO_VALUE)
            elif place in marks:
                found.append(marks[place])
            elif self._frames is not None and framed_by(value) is not None:
                found.append(FRAMED)
            else:
                found.append(self._unmarked(version_at(since, offset), value))
        return found

    def _unmarked(self, version: int, value: bytes) -> int:
        """An Arrow stream says its columns, so it has the newest version with these."""
        schema = self._schemas.get(version)
        if schema is None or schema.format is not SchemaFormat.ARROW:
            return version
        arrow = import_arrow()
        try:
            with arrow.ipc.open_stream(value) as stream:
                columns = stream.schema
        except (arrow.ArrowException, OSError, ValueError):
            return version
        for known, each in sorted(self._schemas.items(), reverse=True):
            if each.format is SchemaFormat.ARROW and columns.equals(arrow_schema(each)):
                return known
        return version

    # --- rows ----------------------------------------------------------------------------------

    def _decode(self, version: int, values: Sequence[Any]) -> DecodedValues:
        columns = reading_schema(self._reader)
        if version == NO_VALUE:
            nothing = dict.fromkeys(columns.names)
            return DecodedValues(
                import_arrow().Table.from_pylist([nothing] * len(values), columns), []
            )
        if version == FRAMED and self._frames is not None:
            return self._frames.decode(values)
        if version == FOREIGN:
            problem = "a record of this topic: its mark says a schema of a deleted or another topic"
        elif version not in self._schemas:
            problem = "a record with a version that the topic has"
        else:
            resolution = self._resolution(version)
            if isinstance(resolution, Resolution):
                return resolution.resolve(codec_of(self._schemas[version]).decode(values))
            problem = f"one that can be read: {resolution}"
        misfits = [Misfit(n, "", problem, beginning(value)) for n, value in enumerate(values)]
        return DecodedValues(columns.empty_table(), misfits, [])

    def _resolution(self, version: int) -> Resolution | Unresolvable:
        known = self._resolutions.get(version)
        if known is None:
            try:
                known = Resolution(self._schemas[version], self._reader)
            except Unresolvable as error:
                known = error
            self._resolutions[version] = known
        return known


def marks_of(records: pa.Table) -> dict[int, bytes | None]:
    """Record -> its mark; the last one, as Kafka's clients take headers."""
    return headers_of(records, SCHEMA_HEADER)


def covers(newest: int, complete: int, records: pa.Table) -> bool:
    """Whether the version of each record is known to who knows versions up to `newest`, and which
    were in force for all before offset `complete`. Only the cluster can say that of a record
    without a mark, or with one that is not known.
    """
    marks = {place: number_in(value) for place, value in marks_of(records).items()}
    values, offsets = records["value"], records["offset"]
    for place in range(records.num_rows - 1, -1, -1):
        if marks.get(place, newest + 1) > newest and values[place].is_valid:
            return int(offsets[place].as_py()) < complete
    return True


def headers_of(records: pa.Table, key: str) -> dict[int, bytes | None]:
    """Record -> the value of its last header of that name."""
    from pyarrow import compute

    headers = records.column("headers").combine_chunks()
    flat, places = headers.flatten(), compute.list_parent_indices(headers)
    is_meant = compute.equal(flat.field("key"), key)
    found: list[bytes | None] = flat.field("value").filter(is_meant).to_pylist()
    return dict(zip(places.filter(is_meant).to_pylist(), found, strict=True))


def unread_of(records: pa.Table) -> tuple[int, str] | None:
    """The first record that a node passed on because it could not read it, and why."""
    found = headers_of(records, UNREAD_HEADER)
    if not found:
        return None
    place = min(found)
    return place, (found[place] or b"").decode(errors="replace")


def _placed(decoded: DecodedValues, places: Sequence[int]) -> tuple[Any, list[int]]:
    """The rows that could be read, and which record each is of."""
    table, sources = decoded.table, decoded.sources
    if sources is None:
        sources = range(table.num_rows)
    unfit = {misfit.index for misfit in decoded.misfits}
    if unfit:
        kept = [row for row, index in enumerate(sources) if index not in unfit]
        table, sources = _take(table, kept), [sources[row] for row in kept]
    return table, [places[index] for index in sources]


def _in_order(
    columns: pa.Schema, parts: Sequence[tuple[Any, list[int]]]
) -> tuple[pa.Table, list[int]]:
    """All rows by their records."""
    arrow = import_arrow()
    table = arrow.concat_tables([columns.empty_table(), *(table for table, _ in parts)])
    sources = [place for _, places in parts for place in places]
    if len(parts) > 1:
        order = sorted(range(len(sources)), key=sources.__getitem__)
        table, sources = _take(table, order), [sources[row] for row in order]
    return table, sources


def _take(table: pa.Table, rows: Sequence[int]) -> pa.Table:
    arrow = import_arrow()
    return table.take(arrow.array(rows, arrow.int64()))
