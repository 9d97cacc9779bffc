"""Rows of a topic's schema as columns of records, each marked with the version that it was written
with.

Invariant: rows that come out were all checked, and one publisher writes a topic with one version
until it is asked for another (docs/typed.md, T1, T17, T18).
"""

from __future__ import annotations

from typing import Any

from samelog.admin.known_schemas import KnownSchemas
from samelog.publisher.arrow_rows import ArrowColumns, binary_column, milliseconds_column
from samelog.publisher.options import Headers, PlacingKeywords, PublisherOptions
from samelog.store.disk.files import OsFileSystem
from samelog.typed.rows import table_of
from samelog.typed.schema import Schema, SchemaFormat
from samelog.typed.values.codecs import codec_of
from samelog.typed.versions import mark


class RowEncoder:
    """Of one publisher. May be used from several threads."""

    def __init__(self, options: PublisherOptions) -> None:
        self._topic = options.topic
        self._known = KnownSchemas(OsFileSystem(), options.directory, options.config)
        self._chosen: dict[str, tuple[int, Schema]] = {}

    def columns(
        self,
        rows: Any,
        version: int | None,
        key: str | None,
        timestamp: str | None,
        placing: PlacingKeywords,
    ) -> ArrowColumns:
        """See `Publisher.append_rows`. Raises RowMisfit, NoSchema, ValueError, TypeError."""
        number, schema = self._choose(placing.get("topic") or self._topic, version)
        if schema.format is SchemaFormat.ARROW:
            _check_whole(key, timestamp, placing)
        table = table_of(rows, schema)
        values: list[bytes | None] = [*codec_of(schema).encode(table)]
        marks: list[Headers | None] = [(mark(number),)] * len(values)
        return ArrowColumns(
            values,
            None if key is None else binary_column(table, key),
            marks,
            None if timestamp is None else milliseconds_column(table, timestamp),
        )

    def _choose(self, topic: str, version: int | None) -> tuple[int, Schema]:
        chosen = self._chosen.get(topic)
        if chosen is None or version not in (None, chosen[0]):
            chosen = self._chosen[topic] = self._known.version(topic, version)
        return chosen


def _check_whole(key: str | None, timestamp: str | None, placing: PlacingKeywords) -> None:
    """Raises ValueError if rows are to have what only a whole value has."""
    if key is not None or timestamp is not None or {"ids", "first_id"} & placing.keys():
        raise ValueError(
            "rows of a schema with the format 'arrow' have no keys, times and ids of their own: "
            "a record is an Arrow stream of many rows"
        )
