"""Rows of a topic's schema as columns of records, each marked with the version that it was written
with.

Invariant: rows that come out were all checked, and one publisher writes a topic with one version
until it is asked for another (docs/typed.md, T1, T17, T18).
"""

from __future__ import annotations

from typing import Any

from samelog.admin.known_schemas import KnownSchemas
from samelog.admin.registry import SchemaRegistry
from samelog.publisher.arrow_rows import ArrowColumns, binary_column, milliseconds_column
from samelog.publisher.options import Headers, PlacingKeywords
from samelog.typed.framing import FrameWriter
from samelog.typed.rows import table_of
from samelog.typed.schema import Schema, SchemaFormat
from samelog.typed.values.codecs import codec_of
from samelog.typed.versions import mark


class RowEncoder:
    """Of one publisher. May be used from several threads."""

    def __init__(
        self, topic: str, known: KnownSchemas, registry: SchemaRegistry | None = None
    ) -> None:
        """`registry`: where values are in Confluent's wire format."""
        self._topic, self._known, self._registry = topic, known, registry
        self._framed: dict[tuple[str, int], FrameWriter] = {}
        self._chosen: dict[str, tuple[int, Schema]] = {}

    def forget(self, topic: str) -> None:
        """Forget the schema of a topic that was deleted."""
        self._known.forget(topic)
        self._chosen.pop(topic, None)
        for key in [key for key in self._framed if key[0] == topic]:
            self._framed.pop(key, None)

    def columns(
        self,
        rows: Any,
        version: int | None,
        key: str | None,
        timestamp: str | None,
        placing: PlacingKeywords,
    ) -> ArrowColumns:
        """See `Publisher.append_rows`. Raises RowMisfit, NoSchema, ValueError, TypeError."""
        topic = placing.get("topic") or self._topic
        number, schema = self._choose(topic, version)
        if schema.format is SchemaFormat.ARROW:
            _check_whole(key, timestamp, placing)
        table = table_of(rows, schema)
        values: list[bytes | None]
        marks: list[Headers | None] | None = None  # framed values say what wrote them
        if self._registry is not None:
            values = [*self._writer(topic, number, schema, self._registry).encode(table)]
        else:
            values = [*codec_of(schema).encode(table)]
            marks = [(mark(number),)] * len(values)
        return ArrowColumns(
            values,
            None if key is None else binary_column(table, key),
            marks,
            None if timestamp is None else milliseconds_column(table, timestamp),
        )

    def _writer(
        self, topic: str, number: int, schema: Schema, registry: SchemaRegistry
    ) -> FrameWriter:
        known = self._framed.get((topic, number))
        if known is None:
            known = FrameWriter(registry, f"{topic}-value", schema)
            self._framed[topic, number] = known
        return known

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
