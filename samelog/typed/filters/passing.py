"""What passes a filter, as record batches again: what a node sends of a log to who wants little.

A piece of a log becomes one batch, of the records that pass, at their offsets; it stands for all
offsets that were examined, as a batch does that compaction has thinned. Rows are rewritten with the
columns that are wanted, by one version of the schema. Invariant: every offset that was looked
at is in a batch; a record that cannot be read passes as it is, with the reason in a header, unless
who asks wants it skipped (docs/typed.md, T21, T24).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from samelog.format import _kernels as kernels
from samelog.format.arrow import to_arrow
from samelog.format.compression import Codec
from samelog.format.recompression import packed
from samelog.format.transactions import Aborted, without_aborted
from samelog.typed.arrow_types import import_arrow
from samelog.typed.filters.filter import Filter
from samelog.typed.filters.operands import BadFilter
from samelog.typed.filters.selection import RowsWanted, Selection
from samelog.typed.misfits import RowMisfit
from samelog.typed.reading import UNREAD_HEADER, TypedReader, TypedRows
from samelog.typed.schema import Schema, SchemaFormat
from samelog.typed.values.codec import reading_schema
from samelog.typed.values.codecs import codec_of
from samelog.typed.versions import Since

if TYPE_CHECKING:
    import pyarrow as pa

_OWN_HEADERS = "samelog."
NO_SCHEMA = 0
_EPOCH = slice(12, 16)
"""Of a batch: partitionLeaderEpoch."""
PACKED_BYTES = 512
"""What is shorter is not worth packing."""


class PassedPiece(NamedTuple):
    """What passed of some offsets. `data` has whole batches, up to `next_offset`."""

    data: bytes
    next_offset: int
    unread: int = 0
    """How many records could not be read, and the last one of them."""
    newest_unread: int = -1


@dataclass(frozen=True, slots=True)
class _Passed:
    """One record that passes."""

    offset: int
    value: bytes | None
    index: int
    """Of the record among those that were looked at."""
    unread: str = ""


def projected(schema: Schema, columns: Sequence[str] | None) -> Schema:
    """A schema with these columns only; None: all. Raises BadFilter."""
    if columns is None:
        return schema
    unknown = sorted({*columns} - {*schema.names})
    if unknown or not columns or len({*columns}) < len(columns):
        known = ", ".join(schema.names)
        what = repr(unknown[0]) if unknown else f"twice, or none: {', '.join(columns)}"
        raise BadFilter(f"there is no column {what}; there are {known}")
    return replace(schema, columns=tuple(schema.by_name[name] for name in columns))


def records_schema() -> pa.Schema:
    """The columns of records. Raises ArrowMissing."""
    return to_arrow(b"", 0, 0, topic="", partition=0).schema


class Passing:
    """The filter of one reader, or of many, over one partition. Threads may use it, one at a time.
    Raises BadFilter, ArrowMissing.
    """

    def __init__(
        self,
        wanted: RowsWanted,
        schemas: Mapping[int, Schema],
        version: int,
        *,
        skips_unread: bool = False,
    ) -> None:
        """`version`: as which rows are read; NO_SCHEMA: records are looked at, not their values."""
        self.wanted, self.version = wanted, version
        self._skips = skips_unread
        arrow = import_arrow()
        self._records = records_schema()
        self._reader: TypedReader | None = None
        if version == NO_SCHEMA:
            if wanted.columns is not None:
                raise BadFilter("columns are for topics with a schema")
            self._filter = Filter(wanted.where or "TRUE", arrow.schema([]), self._records)
            return
        if version not in schemas:
            raise BadFilter(f"there is no version {version} of the schema")
        self._reader = TypedReader(schemas, version)
        whole = schemas[version]
        self._selection = Selection(wanted, reading_schema(whole), self._records)
        self._written = projected(whole, wanted.columns)

    def piece(
        self,
        data: bytes,
        place: tuple[str, int],
        bounds: tuple[int, int],
        since: Since,
        aborted: Sequence[Aborted] = (),
    ) -> PassedPiece:
        """What passes of whole batches, from offset `bounds[0]` on and below `bounds[1]`. `place`:
        topic and partition. Raises CorruptBatch, BadFilter.
        """
        first, stop = bounds
        base = int.from_bytes(data[:8], "big")
        scan = kernels.scan(data)
        behind = min(base + scan.records, stop)
        kept = without_aborted(data, scan.end, base, aborted)
        records = to_arrow(kept, 0, len(kept), topic=place[0], partition=place[1])
        records = _within(records, first, behind)
        found, unread = self._passed(records, since)
        epoch = int.from_bytes(data[_EPOCH], "big", signed=True)
        made = _batch(found, records, (first, behind), epoch)
        newest = unread[-1] if unread else -1
        return PassedPiece(
            packed(made, Codec.ZSTD) if len(made) > PACKED_BYTES else made,
            behind,
            len(unread),
            newest,
        )

    def _passed(self, records: pa.Table, since: Since) -> tuple[list[_Passed], list[int]]:
        """What passes, in order, and the offsets of what cannot be read."""
        if self._reader is None:
            return self._as_they_are(records), []
        read = self._reader.read(records, since)
        found = self._rows(self._selection.of(read, records), records)
        offsets = [each.offset for each in read.unread]
        if read.unread and not self._skips:
            values = records["value"]
            found += [
                _Passed(
                    each.offset, values[each.misfit.index].as_py(), each.misfit.index, str(each)
                )
                for each in read.unread
            ]
            found.sort(key=lambda each: each.offset)
        return found, offsets

    def _as_they_are(self, records: pa.Table) -> list[_Passed]:
        arrow = import_arrow()
        mask = self._filter.mask(records.select([]), records)
        places = arrow.compute.indices_nonzero(mask)
        taken = records.take(places)
        values, offsets = taken["value"].to_pylist(), taken["offset"].to_pylist()
        return [
            _Passed(offset, value, index)
            for offset, value, index in zip(offsets, values, places.to_pylist(), strict=True)
        ]

    def _rows(self, rows: TypedRows, records: pa.Table) -> list[_Passed]:
        offsets, is_null = records["offset"], records["value"].is_null()
        return [
            _Passed(offsets[index].as_py(), value, index)
            for index, value in self._values(rows, is_null.to_pylist())
        ]

    def _values(self, rows: TypedRows, is_null: Sequence[bool]) -> Iterable[tuple[int, Any]]:
        """Yield each record with its rewritten value. Raises BadFilter."""
        table, sources = rows.table, rows.sources
        nulls = [(source, None) for source in sources if is_null[source]]
        if nulls:
            full = [place for place, source in enumerate(sources) if not is_null[source]]
            table, sources = _take(table, full), [sources[place] for place in full]
        try:
            written = [*nulls, *self._written_anew(table, sources)]
        except RowMisfit as error:
            raise BadFilter(f"a row cannot be written again: {error}") from error
        return sorted(written, key=lambda each: each[0])

    def _written_anew(self, table: pa.Table, sources: Sequence[int]) -> Iterable[tuple[int, Any]]:
        codec = codec_of(self._written)
        if self._written.format is not SchemaFormat.ARROW:
            return zip(sources, codec.encode(table), strict=True)
        starts = [n for n, source in enumerate(sources) if not n or source != sources[n - 1]]
        ends = [*starts[1:], len(sources)]
        return [
            (sources[start], _one_stream(codec.encode(table.slice(start, end - start))))
            for start, end in zip(starts, ends, strict=False)
        ]


def _one_stream(streams: Sequence[bytes]) -> bytes:
    """The rows of one record, whose value they were: one stream again."""
    if len(streams) == 1:
        return streams[0]
    arrow = import_arrow()
    tables = [arrow.ipc.open_stream(stream).read_all() for stream in streams]
    whole = arrow.concat_tables(tables).combine_chunks()
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, whole.schema) as stream:
        stream.write_table(whole)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _take(table: pa.Table, rows: Sequence[int]) -> pa.Table:
    arrow = import_arrow()
    return table.take(arrow.array(rows, arrow.int64()))


def _within(records: pa.Table, first: int, stop: int) -> pa.Table:
    """Those with offsets from `first` on and below `stop`."""
    from pyarrow import compute

    offsets = records["offset"]
    if not records.num_rows or (offsets[0].as_py() >= first and offsets[-1].as_py() < stop):
        return records
    return records.filter(
        compute.and_(compute.greater_equal(offsets, first), compute.less(offsets, stop))
    )


def _batch(
    found: Sequence[_Passed], records: pa.Table, bounds: tuple[int, int], epoch: int
) -> bytes:
    first, behind = bounds
    taken = _take(records, [each.index for each in found])
    arrow = import_arrow()
    return kernels.build_sparse(
        [each.value for each in found],
        keys=taken["key"].to_pylist(),
        headers=[
            _headers(headers, each)
            for headers, each in zip(taken["headers"].to_pylist(), found, strict=True)
        ],
        timestamps=taken["timestamp"].cast(arrow.int64()).to_pylist(),
        offsets=[each.offset for each in found],
        first=first,
        behind=behind,
        leader_epoch=epoch,
    )


def _headers(headers: Sequence[Mapping[str, Any]] | None, record: _Passed) -> Any:
    """Return the record's headers, except those about the value that is rewritten."""
    kept = [
        (each["key"], each["value"])
        for each in headers or ()
        if not each["key"].startswith(_OWN_HEADERS)
    ]
    if record.unread:
        kept.append((UNREAD_HEADER, record.unread.encode()))
    return kept or None
