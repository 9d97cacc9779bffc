"""Rows of a topic's schema as columns of records, each marked with the version that it was written
with.

Invariant: rows that come out were all checked, and one publisher writes a topic with one version
until it is asked for another, or learns that the topic was deleted (docs/typed.md, T1, T17, T18).
"""

from __future__ import annotations

from typing import Any

from samelog.admin.known_schemas import KnownSchemas, KnownVersion
from samelog.admin.registry import SchemaRegistry
from samelog.publisher.arrow_rows import ArrowColumns, binary_column, milliseconds_column
from samelog.publisher.options import Headers, PlacingKeywords
from samelog.typed.framing import FrameWriter
from samelog.typed.rows import table_of
from samelog.typed.schema import SchemaFormat
from samelog.typed.values.codecs import codec_of
from samelog.typed.versions import mark


class RowEncoder:
    """Of one publisher. May be used from several threads."""

    def __init__(
        self, topic: str, known: KnownSchemas, registry: SchemaRegistry | None = None
    ) -> None:
        """`registry`: where values are in Confluent's wire format."""
        self._topic, self._known, self._registry = topic, known, registry
        self._framed: dict[tuple[str, str, str], FrameWriter] = {}
        """By topic, its id, and the fingerprint of a schema."""
        self._chosen: dict[str, KnownVersion] = {}

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
        chosen = self._choose(topic, version)
        schema = chosen.schema
        if schema.format is SchemaFormat.ARROW:
            _check_whole(key, timestamp, placing)
        table = table_of(rows, schema)
        values: list[bytes | None]
        marks: list[Headers | None] | None = None  # framed values say what wrote them
        if self._registry is not None:
            values = [*self._writer(topic, chosen, self._registry).encode(table)]
        else:
            values = [*codec_of(schema).encode(table)]
            marks = [(mark(chosen.number, schema.fingerprint),)] * len(values)
        return ArrowColumns(
            values,
            None if key is None else binary_column(table, key),
            marks,
            None if timestamp is None else milliseconds_column(table, timestamp),
        )

    def _writer(self, topic: str, chosen: KnownVersion, registry: SchemaRegistry) -> FrameWriter:
        key = topic, chosen.known.topic_id, chosen.schema.fingerprint
        known = self._framed.get(key)
        if known is None:
            known = self._framed[key] = FrameWriter(registry, f"{topic}-value", chosen.schema)
        return known

    def _choose(self, topic: str, version: int | None) -> KnownVersion:
        """The version to write. What another thread, or a sidecar, knows to be deleted is not kept,
        also if it learns of that while the cluster is asked here.
        """
        chosen = self._chosen.get(topic)
        if chosen is not None and self._known.is_gone(topic, chosen.known.topic_id):
            chosen = None
        if chosen is None or version not in (None, chosen.number):
            chosen = self._chosen[topic] = self._known.version(topic, version)
        return chosen


def _check_whole(key: str | None, timestamp: str | None, placing: PlacingKeywords) -> None:
    """Raises ValueError if rows are to have what only a whole value has."""
    if key is not None or timestamp is not None or {"ids", "first_id"} & placing.keys():
        raise ValueError(
            "rows of a schema with the format 'arrow' have no keys, times and ids of their own: "
            "a record is an Arrow stream of many rows"
        )
