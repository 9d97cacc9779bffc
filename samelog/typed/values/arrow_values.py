"""Values that are Arrow streams: each has as many rows as it has, and its own schema.

What is checked costs the same for a row as for a thousand: that the stream's columns are the
schema's, and that it is whole. Invariant: rows that are read have the schema's columns; a stream
whose buffers are damaged gives a misfit when it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from samelog.typed.arrow_types import arrow_schema, import_arrow
from samelog.typed.misfits import Misfit
from samelog.typed.schema import Schema
from samelog.typed.values.codec import DecodedValues, Unfit, ValueCodec, reading_schema

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1000
"""Of one value, at most: what a publisher makes of a table."""
VALUE_BYTES = 256 << 10


class ArrowCodec(ValueCodec):
    """Arrow streams of one schema."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._arrow_schema: Any = arrow_schema(schema)

    def encode(self, table: pa.Table) -> list[bytes]:
        """A stream for each thousand rows, or fewer where they are large."""
        if not table.num_rows:
            return []
        rows = max(1, min(ROWS, VALUE_BYTES * table.num_rows // max(1, table.nbytes)))
        batches = table.combine_chunks().to_batches(max_chunksize=rows)
        return [self._stream(batch) for batch in batches]

    def _stream(self, batch: Any) -> bytes:
        arrow = import_arrow()
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, self._arrow_schema) as stream:
            stream.write_batch(batch)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    def check(self, values: Sequence[bytes | None]) -> list[Misfit]:
        """What is no whole stream of these columns; buffers are not looked into."""
        return self._read(values, is_full=False).misfits

    def decode(self, values: Sequence[bytes | None]) -> DecodedValues:
        """All rows of all streams."""
        return self._read(values, is_full=True)

    def _read(self, values: Sequence[bytes | None], *, is_full: bool) -> DecodedValues:
        arrow = import_arrow()
        found = reading_schema(self.schema)
        nothing = arrow.Table.from_pylist([{}], schema=found)
        tables, sources, misfits = [found.empty_table()], [], []
        for index, value in enumerate(values):
            table = nothing
            if value is not None:
                try:
                    table = self._table(value, is_full=is_full).cast(found)
                except Unfit as unfit:
                    misfits.append(unfit.at(index))
            tables.append(table)
            sources += [index] * table.num_rows
        return DecodedValues(arrow.concat_tables(tables), misfits, sources)

    def _table(self, value: bytes, *, is_full: bool) -> Any:
        """Raises Unfit."""
        arrow = import_arrow()
        try:
            with arrow.ipc.open_stream(value) as stream:
                if not stream.schema.equals(self._arrow_schema):
                    raise self._unlike(stream.schema, value)
                table = stream.read_all()
            table.validate(full=is_full)
        except (arrow.ArrowException, OSError, ValueError) as error:
            if isinstance(error, Unfit):
                raise
            raise Unfit("", "a whole Arrow stream", value) from None
        for column in self.schema.columns:
            if not column.is_nullable and table.column(column.name).null_count:
                raise Unfit(column.name, column.type.text, None)
        return table

    def _unlike(self, found: Any, value: bytes) -> Unfit:
        for column, field in zip(self.schema.columns, found, strict=False):
            if field != self._arrow_schema.field(column.name):
                return Unfit(column.name, column.type.text, f"{field.name}: {field.type}")
        return Unfit("", f"an Arrow stream of {len(self.schema.columns)} columns", value)
