"""The rows of records as the column `fields` of a Parquet file, by the versions of their topic's
schema.

Invariant: there is a row for every record; one that cannot be read as the newest version of the
segment is null, and its value has its bytes in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samelog.archiver.copies.manifests import SegmentSchemas
from samelog.typed.arrow_types import import_arrow
from samelog.typed.reading import TypedReader
from samelog.typed.schema import SchemaFormat, parse_schema

if TYPE_CHECKING:
    import pyarrow as pa


def schema_fields(schemas: SegmentSchemas) -> SchemaFields | None:
    """What makes the column; None: there is no schema, or a record has many rows."""
    if not schemas.texts or parse_schema(schemas.texts[-1]).format is SchemaFormat.ARROW:
        return None
    return SchemaFields(schemas)


class SchemaFields:
    """Makes the column for one segment."""

    def __init__(self, schemas: SegmentSchemas) -> None:
        parsed = {number: parse_schema(text) for number, text in enumerate(schemas.texts, 1)}
        self._reader, self._since = TypedReader(parsed, len(parsed)), schemas.since

    def of(self, records: pa.Table) -> pa.Array:
        """The column for these records."""
        arrow = import_arrow()
        found = self._reader.read(records, self._since)
        places: list[int | None] = [None] * records.num_rows
        for row, source in enumerate(found.sources):
            if records["value"][source].is_valid:
                places[source] = row
        table = found.table.take(arrow.array(places, arrow.int64())).combine_chunks()
        nulls = arrow.array([place is None for place in places], arrow.bool_())
        columns = [column.combine_chunks() for column in table.columns]
        return arrow.StructArray.from_arrays(columns, fields=list(table.schema), mask=nulls)
