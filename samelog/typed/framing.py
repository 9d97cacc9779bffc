"""Values in Confluent's wire format: a zero byte, four bytes of the id that a schema has in a
registry, and a record of that schema.

A record is read by the very schema that wrote it; its fields go by their names into the columns of
the reader. Invariant: what a column cannot hold is a misfit, and never rounded; a field that the
reader does not know is left out, as a column that was removed is (docs/typed.md, T10, T17).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

import msgspec

from samelog.typed.arrow_types import import_arrow
from samelog.typed.misfits import Misfit, RowMisfit
from samelog.typed.rows import table_of
from samelog.typed.schema import NobodyAnswers, NoSchema, Schema, SchemaFormat
from samelog.typed.values.avro_values import avro_schema, import_fastavro
from samelog.typed.values.codec import DecodedValues, Unfit, reading_schema

if TYPE_CHECKING:
    import pyarrow as pa

HEAD = Struct(">bi")
MAGIC = 0
AVRO, JSON = "AVRO", "JSON"


class Registered(NamedTuple):
    """A schema of a registry: its kind, and its text."""

    kind: str
    text: str


class SchemaIds(Protocol):
    """A registry."""

    def schema(self, number: int) -> Registered:
        """The schema of an id, which never is another one. Raises NoSchema, NobodyAnswers."""

    def register(self, subject: str, schema: Registered) -> int:
        """The id of a schema, which a subject has now. Raises NobodyAnswers, NoSchema."""


def framed_by(value: bytes | None) -> int | None:
    """The id that a value says; None: it is not in this format."""
    if value is None or len(value) < HEAD.size or value[0] != MAGIC:
        return None
    number: int = HEAD.unpack_from(value)[1]
    return number


class Frames:
    """Records of such values, by the schemas that wrote them. Not thread-safe."""

    def __init__(self, ids: SchemaIds) -> None:
        self._ids = ids
        self._writers: dict[int, Callable[[bytes], Any]] = {}
        """Id -> what decodes its values."""

    def record(self, value: bytes) -> Mapping[str, Any]:
        """The fields of a value. Raises Unfit, NobodyAnswers."""
        number = framed_by(value)
        if number is None:
            raise Unfit("", "a value with the id of a schema of the registry", value)
        read = self._writers.get(number)
        if read is None:
            read = self._writers[number] = self._reader_of(number, value)
        try:
            record = read(value[HEAD.size :])
        except Exception:  # noqa: BLE001  # a library raises whatever its decoding stumbles over
            record = None
        if not isinstance(record, Mapping):
            raise Unfit("", f"a record of schema {number} of the registry", value)
        return record

    def _reader_of(self, number: int, value: bytes) -> Callable[[bytes], Any]:
        try:
            kind, text = self._ids.schema(number)
        except NobodyAnswers:
            raise
        except NoSchema as error:
            raise Unfit("", f"a value of a schema that the registry has: {error}", value) from error
        if kind == JSON:
            return msgspec.json.decode
        if kind != AVRO:
            raise Unfit("", f"a record of Avro or JSON, not of {kind}", value)
        library = import_fastavro()
        try:
            parsed = library.parse_schema(json.loads(text))
        except Exception as error:  # what others register may refer to what is elsewhere
            raise Unfit("", f"a value whose schema can be used: {error}", value) from error
        return lambda body: _whole_record(library, parsed, body)


def _whole_record(library: Any, parsed: Any, body: bytes) -> Any:
    """None if there is more than a record, or none of fields."""
    stream = BytesIO(body)
    record = library.schemaless_reader(stream, parsed, None)
    if stream.tell() != len(body) or not isinstance(record, dict):
        return None
    return {name: str(cell) if isinstance(cell, UUID) else cell for name, cell in record.items()}


class FramedRows:
    """Reads such values as rows of one schema."""

    def __init__(self, ids: SchemaIds, schema: Schema) -> None:
        self._frames, self._schema = Frames(ids), schema

    def decode(self, values: Sequence[bytes]) -> DecodedValues:
        """A row for each value that fits. Raises NobodyAnswers."""
        rows: list[Mapping[str, Any]] = []
        sources: list[int] = []
        misfits: list[Misfit] = []
        known = self._schema.by_name
        for index, value in enumerate(values):
            try:
                record = self._frames.record(value)
            except Unfit as unfit:
                misfits.append(unfit.at(index))
                continue
            rows.append({name: cell for name, cell in record.items() if name in known})
            sources.append(index)
        kept: list[int] = []
        arrow = import_arrow()
        empty = reading_schema(self._schema).empty_table()
        parts = list(self._tables(rows, sources, kept, misfits))
        misfits.sort(key=lambda each: each.index)
        return DecodedValues(arrow.concat_tables([empty, *parts]), misfits, kept)

    def _tables(
        self,
        rows: Sequence[Mapping[str, Any]],
        sources: Sequence[int],
        kept: list[int],
        misfits: list[Misfit],
    ) -> Iterator[pa.Table]:
        """The rows that fit, whose sources are kept; by halves down to those that do not."""
        try:
            yield table_of(rows, self._schema).cast(reading_schema(self._schema))
            kept += sources
        except RowMisfit as found:
            if len(rows) == 1:
                misfits.append(replace(found.misfit, index=sources[0]))
                return
            half = len(rows) // 2
            yield from self._tables(rows[:half], sources[:half], kept, misfits)
            yield from self._tables(rows[half:], sources[half:], kept, misfits)


class FrameWriter:
    """Writes rows of one schema as such values. Raises ValueError unless it is of Avro; NoSchema,
    NobodyAnswers.
    """

    def __init__(self, ids: SchemaIds, subject: str, schema: Schema) -> None:
        if schema.format is not SchemaFormat.AVRO:
            raise ValueError("a registry is for topics whose schema has the format 'avro'")
        exact = [each.name for each in schema.columns if each.type.unit == "ns"]
        if exact:
            raise ValueError(f"Avro's library writes no nanoseconds: {', '.join(exact)}")
        text = avro_schema(schema)
        self._library = import_fastavro()
        self._parsed = self._library.parse_schema(text)
        self._head = HEAD.pack(MAGIC, ids.register(subject, Registered(AVRO, json.dumps(text))))

    def encode(self, table: pa.Table) -> list[bytes]:
        """A value for each row. Raises RowMisfit."""
        values = []
        for index, row in enumerate(table.to_pylist()):
            stream = BytesIO()
            stream.write(self._head)
            try:
                self._library.schemaless_writer(stream, self._parsed, row)
            except (ValueError, TypeError, OverflowError) as error:
                misfit = Misfit(index, "", "a row that Avro's library writes", str(error)[:64])
                raise RowMisfit(misfit) from error
            values.append(stream.getvalue())
        return values
