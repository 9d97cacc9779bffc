"""The records of a segment as a Parquet file, and back.

The columns are those that Spark's Kafka source has: key, value, topic, partition, offset,
timestamp, timestampType, headers; and, if the topic has a schema, `fields` with the values' own.
A row group holds what a few megabytes of the segment did.

Those fields are an Arrow column, of values that are JSON objects.

Invariant: every record of the segment is a row, in order; control batches have none. Records that
are rebuilt equal the ones that were written, but for their batches: codec, producer and leader
epoch are not kept.
Also: there is a row for every value; one that does not fit the schema is null, never an error
and never cut to fit. Its fields are decoded as every other reader decodes them (rule typed.18).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from samelog.archiver.copies.manifests import NO_SCHEMAS, CopiedLog, CopyFault, SegmentSchemas
from samelog.archiver.copies.schema_fields import schema_fields
from samelog.format import _kernels as kernels
from samelog.format.arrow import to_arrow
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.typed.arrow_types import arrow_type
from samelog.typed.types import parse_type
from samelog.typed.values.halves import decode_each
from samelog.typed.values.json_columns import json_columns

if TYPE_CHECKING:
    import pyarrow as pa

FIELDS = "fields"
"""The name of the column: a struct, so that no field meets another column's name."""
MOMENT = "timestamp[ms, UTC]"
"""The type of a column for which the setting says `timestamp[ms]`."""


class TypedValues:
    """Makes the column for one schema."""

    def __init__(self, schema: Mapping[str, str]) -> None:
        """`schema`: field -> type, as `parse_schema` gives it."""
        import pyarrow as arrow

        self._schema = arrow.schema([(name, _arrow_type(kind)) for name, kind in schema.items()])
        self._read = json_columns(self._schema).read

    def of(self, records: pa.Table) -> pa.Array:
        """The column for these records."""
        return self.column(records["value"].combine_chunks())

    def column(self, values: pa.Array) -> pa.Array:
        """The column for these values."""
        import pyarrow as arrow

        found = decode_each(values, self._read, self._schema)
        nulls = [
            is_null or place in found.bad
            for place, is_null in enumerate(values.is_null().to_pylist())
        ]
        return arrow.StructArray.from_arrays(
            [column.combine_chunks() for column in found.columns.columns],
            fields=list(self._schema),
            mask=arrow.array(nulls, arrow.bool_()),
        )


def _arrow_type(kind: str) -> pa.DataType:
    return arrow_type(parse_type(MOMENT if kind == "timestamp[ms]" else kind))


CODEC = "zstd"
BATCH_BYTES = 1 << 20
ROWS_AT_ONCE = 16_384
CREATE_TIME = 0
COLUMNS = ["key", "value", "offset", "timestamp", "timestampType", "headers"]
"""What records are rebuilt from."""


class RowGroupSpan(NamedTuple):
    """Rows of a file: how many, and the first and last offset; -1 if there are none."""

    rows: int
    first: int
    last: int


class ParquetSink:
    """Writes the rows of one segment's copy."""

    def __init__(
        self,
        stream: Any,
        log: CopiedLog,
        schema: Mapping[str, str],
        schemas: SegmentSchemas = NO_SCHEMAS,
    ) -> None:
        """`stream`: what takes the bytes of the file; it stays open. `schema`: of the values, as
        `parse_schema` gives it; without one, the topic's `schemas` count.
        """
        self._stream = stream
        self._typed = TypedValues(schema) if schema else schema_fields(schemas)
        self._log = log
        self._writer: Any = None
        self.groups: list[RowGroupSpan] = []
        """Of every row group."""

    def write(self, data: bytes, size: int) -> None:
        """Add the records of `data[:size]`, whole batches. Raises CorruptBatch,
        DecompressionError.
        """
        table = to_arrow(data, 0, size, topic=self._log.topic, partition=self._log.partition)
        if self._typed is not None:
            table = table.append_column(FIELDS, self._typed.of(table))
        self._open(table.schema)
        if table.num_rows:
            self._writer.write_table(table, row_group_size=table.num_rows)
            self.groups.append(_span_of(table.column("offset")))

    def _open(self, schema: pa.Schema) -> None:
        if self._writer is None:
            from pyarrow.parquet import ParquetWriter

            self._writer = ParquetWriter(
                self._stream, schema, compression=CODEC, write_page_checksum=True
            )

    def close(self) -> None:
        """Write the end of the file."""
        if self._writer is not None:
            self._writer.close()


def _span_of(offsets: pa.ChunkedArray) -> RowGroupSpan:
    return RowGroupSpan(len(offsets), offsets[0].as_py(), offsets[-1].as_py())


def check_parquet(file: Any, name: str, groups: list[RowGroupSpan]) -> None:
    """Read the offsets back. Raises CopyFault: they are not those that were written."""
    with _opened(file) as parquet:
        found = [
            _span_of(parquet.read_row_group(number, columns=["offset"]).column("offset"))
            for number in range(parquet.num_row_groups)
        ]
    if found != groups:
        raise CopyFault(f"{name} does not hold the records that were written to it")


def rebuild(file: Any, name: str) -> Iterator[tuple[int, bytes]]:
    """The records of a file as batches without offsets, each with its first offset. Raises
    CopyFault: they cannot be read.
    """
    try:
        with _opened(file) as parquet:
            for rows in parquet.iter_batches(batch_size=ROWS_AT_ONCE, columns=COLUMNS):
                yield from _batches(_rows(rows))
    except (OSError, ValueError, KeyError) as error:
        raise CopyFault(f"{name} cannot be read: {error}") from error


def _opened(file: Any) -> Any:
    from pyarrow.parquet import ParquetFile

    return ParquetFile(file, page_checksum_verification=True)


def _rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as Python has them; timestamps stay numbers, as no calendar has some of them."""
    column = rows.schema.get_field_index("timestamp")
    found: list[dict[str, Any]] = rows.set_column(
        column, "timestamp", rows.column(column).cast("int64")
    ).to_pylist()
    return found


def _batches(rows: list[dict[str, Any]]) -> Iterator[tuple[int, bytes]]:
    """A run of rows with dense offsets and one type of timestamp becomes batches."""
    for _, numbered in groupby(enumerate(rows), key=_run_of):
        run = [row for _, row in numbered]
        data = bytearray(_encoded(run))
        if run[0]["timestampType"] != CREATE_TIME:
            kernels.stamp_append_time(data, run[0]["timestamp"])
        yield run[0]["offset"], bytes(data)


def _run_of(numbered: tuple[int, dict[str, Any]]) -> tuple[int, int]:
    """What the rows of a run have in common; those with the time of appending, that time too."""
    number, row = numbered
    is_stamped = row["timestampType"] != CREATE_TIME
    return row["offset"] - number, row["timestamp"] if is_stamped else -1


def _encoded(run: list[dict[str, Any]]) -> bytes:
    return kernels.build_batches(
        [row["value"] for row in run],
        keys=[row["key"] for row in run],
        headers=[[(each["key"], each["value"]) for each in row["headers"]] for row in run],
        timestamps=[row["timestamp"] for row in run],
        batch_bytes=BATCH_BYTES,
        max_record_bytes=HELD_BATCH_BYTES,
    )
