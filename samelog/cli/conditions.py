"""Which records of a topic meet a condition, for commands that look at them where they come.

It is the same condition as of `Subscriber(where=…)` (docs/typed.md, "Filters"), over the rows that
the records are, by the newest version of the topic's schema, and over keys and headers. Invariant:
a record that cannot be read as a row is not shown, and named on standard error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samelog.admin.client import topic_schemas
from samelog.cli.output import talk
from samelog.format.arrow import to_arrow
from samelog.typed.arrow_types import import_arrow
from samelog.typed.filters.filter import Filter
from samelog.typed.filters.selection import RowsWanted, Selection
from samelog.typed.reading import TypedReader
from samelog.typed.schema import parse_schema
from samelog.typed.values.codec import reading_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from samelog.admin.answers import SchemaPage
    from samelog.config.tables.client import ClientConfig


class RowCondition:
    """Over the records of one partition."""

    def __init__(self, config: ClientConfig, topic: str, partition: int, where: str) -> None:
        """Raises BadFilter, ArrowMissing, AdminError."""
        self._place = topic, partition
        import_arrow()  # names the extra that has everything a filter needs
        records = to_arrow(b"", 0, 0, topic=topic, partition=partition).schema
        known = topic_schemas(config, topic, partition)
        self._since = known.since
        self._reader = _reader(known)
        if self._reader is None:
            self._filter = Filter(where, import_arrow().schema([]), records)
        else:
            rows = reading_schema(parse_schema(known.versions[-1].schema))
            self._selection = Selection(RowsWanted(where), rows, records)

    def meeting(self, data: Buffer, size: int) -> set[int]:
        """The offsets of the records of some batches that meet it."""
        topic, partition = self._place
        records = to_arrow(data, 0, size, topic=topic, partition=partition)
        if self._reader is None:
            mask = self._filter.mask(records.select([]), records)
            return {*records.filter(mask)["offset"].to_pylist()}
        return self._rows_meeting(self._reader, records)

    def _rows_meeting(self, reader: TypedReader, records: pa.Table) -> set[int]:
        found = self._selection.of(reader.read(records, self._since), records)
        for each in found.unread:
            talk(f"samelog: {each}")
        offsets = records["offset"].to_pylist()
        return {offsets[source] for source in found.sources}


def _reader(known: SchemaPage) -> TypedReader | None:
    if not known.newest:
        return None
    schemas = {each.version: parse_schema(each.schema) for each in known.versions}
    return TypedReader(schemas, known.newest)
