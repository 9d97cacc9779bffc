"""Rows for people to look at, and values of Avro and Arrow as such rows: each by the version of its
topic's schema that wrote it, or by the schema that a registry has under its id.

Invariant: a value that is no row of that version is left as it is; each row is one line of JSON,
whatever its cells are.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from samelog.admin.client import topic_schemas
from samelog.admin.errors import AdminError
from samelog.cli.output import talk
from samelog.cli.record_text import iso_of
from samelog.format._kernels import Record
from samelog.format.arrow import ArrowMissing
from samelog.typed.framing import Frames, framed_by
from samelog.typed.schema import NobodyAnswers, Schema, SchemaFormat, parse_schema
from samelog.typed.values.codec import Unfit
from samelog.typed.values.codecs import codec_of
from samelog.typed.versions import SCHEMA_HEADER, marked_version, version_at

if TYPE_CHECKING:
    import pyarrow as pa

    from samelog.admin.answers import SchemaPage
    from samelog.config.tables.client import ClientConfig

BINARY = (SchemaFormat.AVRO, SchemaFormat.ARROW)
"""The others are texts."""


def lines(table: pa.Table) -> list[bytes]:
    """The rows, as JSON. Python has no times after the year 9999: they are as Arrow has them."""
    try:
        return [msgspec.json.encode(row, enc_hook=iso_of) for row in table.to_pylist()]
    except (OverflowError, ValueError):
        return [msgspec.json.encode(row) for row in _with_texts(table).to_pylist()]


def _with_texts(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    def shown(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_list(kind):
            return pa.list_(shown(kind.value_type))
        is_moment = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
        return pa.string() if is_moment else kind

    return table.cast(pa.schema([each.with_type(shown(each.type)) for each in table.schema]))


class PartitionRows:
    """Of one partition's values. Who has no library for them, or gets no answer, is told once."""

    def __init__(
        self, config: ClientConfig, topic: str, partition: int, frames: Frames | None = None
    ) -> None:
        """`frames`: what reads values with an id of a registry; None: none is asked."""
        self._config, self._topic, self._partition = config, topic, partition
        self._frames = frames

    @cached_property
    def _page(self) -> SchemaPage | None:
        try:
            return topic_schemas(self._config, self._topic, self._partition)
        except AdminError as error:
            talk(f"samelog: the schema of topic {self._topic} is not known: {error}")
            return None

    def of(self, record: Record) -> list[bytes] | None:
        """The rows of a record's value; None: it has none, or is a text."""
        framed = self._framed(record.value)
        if framed is not None:
            return [framed]
        schema = None if record.value is None else self._schema(record)
        if schema is None or schema.format not in BINARY:
            return None
        try:
            found = codec_of(schema).decode([record.value])
        except ArrowMissing as error:
            talk(f"samelog: {error}")
            self._page = None
            return None
        return None if found.misfits else lines(found.table)

    def _framed(self, value: bytes | None) -> bytes | None:
        """The fields of a value, by the registry's schema of its id; None: it is none."""
        if self._frames is None or value is None or framed_by(value) is None:
            return None
        try:
            return msgspec.json.encode(self._frames.record(value), enc_hook=iso_of)
        except (NobodyAnswers, ArrowMissing) as error:
            talk(f"samelog: {error}")
            self._frames = None
        except (Unfit, TypeError, ValueError, OverflowError):
            pass  # a value that begins with a zero byte by chance
        return None

    @cached_property
    def _schemas(self) -> dict[int, Schema]:
        page = self._page
        return {} if page is None else {n.version: parse_schema(n.schema) for n in page.versions}

    def _schema(self, record: Record) -> Schema | None:
        """The one that wrote a record."""
        if self._page is None:
            return None
        marks = [value for name, value in record.headers if name == SCHEMA_HEADER]
        if marks:
            return self._schemas.get(marked_version(marks[-1], self._schemas))
        return self._schemas.get(version_at(self._page.since, record.offset))
