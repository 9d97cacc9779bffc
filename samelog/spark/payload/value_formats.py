"""Values as columns: JSON or CSV, Avro records, Arrow streams of whole tables; some may be bad.

A parser takes all values or none, which is what makes it fast; so whoever is refused is parsed in
halves, down to the bad ones. CSV of a batch is lines of one text for one call of Arrow's reader, so
that a bad value could break out of its line and shift all others. So each line carries
its number, counted from a random one: who does not know that cannot forge it, and a text whose
numbers are not what they must be is parsed in halves.

Invariant: there is a row for every value, in order, whatever they hold; a value that is bad never
changes what another one gives.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from samelog.spark.errors import BadOption

if TYPE_CHECKING:
    import pyarrow as pa

Parse = Callable[["pa.Array"], "pa.Table"]
"""A row for each of the values, none of which is null; raises ArrowException or ValueError."""


class Decoded(NamedTuple):
    """`columns` has the rows; `sources`: which value each row is of (None: a row for each value, in
    order); `bad`: value -> why it cannot be decoded; its row is null.
    """

    columns: pa.Table
    sources: pa.Array | None
    bad: dict[int, str]


def decode_each(values: pa.Array, parse: Parse, schema: pa.Schema) -> Decoded:
    """A row for each value; that of a value that is null, or bad, is null."""
    import pyarrow as pa

    present = values.is_valid()
    bad: dict[int, str] = {}
    places = count_up(0, len(values)).filter(present)
    tables = []
    for start, size, found in _halving(values.drop_null(), parse):
        if isinstance(found, str):
            bad[places[start].as_py()] = found
        elif size:
            tables.append(found)
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    if bad or values.null_count:
        table = table.take(_places(present, bad))
    return Decoded(table, None, bad)


def count_up(first: int, count: int) -> pa.Array:
    """The numbers [first, first + count), without any Python work for each."""
    import pyarrow as pa
    from pyarrow import compute

    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    return compute.cumulative_sum(ones, start=first - 1)


def _halving(
    values: pa.Array, parse: Parse, start: int = 0
) -> Iterator[tuple[int, int, pa.Table | str]]:
    """(first value, how many, their rows or why there are none) of pieces that parse or are one."""
    import pyarrow as pa

    size = len(values)
    if size == 0:
        return
    try:
        yield start, size, parse(values)
    except pa.ArrowNotImplementedError:
        raise  # of the schema: no value would do
    except (pa.ArrowException, ValueError) as error:
        if size == 1:
            yield start, 1, str(error)
            return
        half = size // 2
        yield from _halving(values.slice(0, half), parse, start)
        yield from _halving(values.slice(half), parse, start + half)


def _places(present: pa.Array, bad: dict[int, str]) -> pa.Array:
    """Where the rows are of the values that have one; null for the others."""
    import pyarrow as pa

    places, row = [], 0
    for value, is_present in enumerate(present.to_pylist()):
        has_row = is_present and value not in bad
        places.append(row if has_row else None)
        row += has_row
    return pa.array(places, pa.int64())


def avro_parser(schema: pa.Schema, written: str) -> Parse:
    """Each value is one record in Avro's binary encoding, without a header; `written` is the schema
    it was written with, as JSON. Fields are matched by name. Raises BadOption.
    """
    import fastavro

    try:
        writer: Any = fastavro.parse_schema(json.loads(written))
    except (ValueError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise BadOption(f"avroSchema is no schema of Avro: {error}") from error
    fields = {field["name"] for field in writer.get("fields", [])}
    missing = [field.name for field in schema if field.name not in fields]
    if missing:
        found = ", ".join(sorted(fields)) or "no fields"
        raise BadOption(f"avroSchema has no {', '.join(missing)}; it has {found}")
    return partial(_parse_avro, schema, writer)


def _parse_avro(schema: pa.Schema, writer: Any, values: pa.Array) -> pa.Table:
    import pyarrow as pa

    records = [_read_avro(writer, value) for value in values.to_pylist()]
    return pa.Table.from_pylist(records, schema=schema)


def _read_avro(writer: Any, value: bytes) -> Any:
    import fastavro

    stream = BytesIO(value)
    try:
        record = fastavro.schemaless_reader(stream, writer, None)
    except Exception as error:  # the library raises whatever its decoding stumbles over
        raise ValueError(f"no such Avro record: {error!r}") from error
    if stream.read(1):
        raise ValueError("there are bytes behind the Avro record")
    return record


def decode_tables(values: pa.Array, schema: pa.Schema) -> Decoded:
    """Each value is an Arrow IPC stream, and gives as many rows as that has; one that is null, or
    bad, gives a row of nulls. Columns are matched by name.
    """
    import pyarrow as pa

    nothing = pa.Table.from_pylist([{}], schema=schema)
    tables, sources, bad = [schema.empty_table()], [], {}
    for number, value in enumerate(values.to_pylist()):
        table = nothing
        if value is not None:
            try:
                table = _read_table(value, schema)
            except (pa.ArrowException, ValueError, KeyError, OSError) as error:
                bad[number] = str(error)
        tables.append(table)
        sources += [number] * table.num_rows
    return Decoded(pa.concat_tables(tables), pa.array(sources, pa.int64()), bad)


def _read_table(value: bytes, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    with pa.ipc.open_stream(value) as stream:
        found = stream.read_all()
    found.validate(full=True)
    columns = [found.column(field.name).cast(field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


NUMBER, VALUE = "i", "v"
RANDOM_NUMBERS = 1 << 45


def json_parser(schema: pa.Schema) -> Parse:
    """Each value is a JSON object; members that the schema does not have are passed over, those
    that are missing are null.
    """
    from samelog.typed.values.json_columns import json_columns

    return json_columns(schema).read


def csv_parser(schema: pa.Schema) -> Parse:
    """Each value is a line with the columns of the schema in their order; empty ones are null."""
    return partial(_parse_csv, schema)


def _parse_csv(schema: pa.Schema, values: pa.Array) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    first = secrets.randbelow(RANDOM_NUMBERS)
    text = _join(_numbers(first, len(values)), b",", values, b"\n")
    names = [NUMBER, *(f"{VALUE}{field.name}" for field in schema)]
    kinds = dict(zip(names, [pa.int64(), *schema.types], strict=True))
    found = csv.read_csv(
        pa.BufferReader(text),
        read_options=csv.ReadOptions(
            use_threads=False, block_size=len(text) + 1, column_names=names
        ),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=kinds,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    _check_numbers(found, first, len(values))
    return _shaped(found.columns[1:], schema)


def _numbers(first: int, count: int) -> Any:
    import pyarrow as pa

    return count_up(first, count).cast(pa.string()).cast(pa.binary())


def _join(*parts: Any) -> Any:
    """The parts of each line, and all lines, as one buffer."""
    import pyarrow as pa
    from pyarrow import compute

    scalars = [pa.scalar(part) if isinstance(part, bytes) else part for part in parts]
    lines = compute.binary_join_element_wise(*scalars, pa.scalar(b""))
    _, offsets, data = lines.buffers()
    last = pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, offsets])[-1].as_py()
    return data.slice(0, last)


def _check_numbers(found: pa.Table, first: int, count: int) -> None:
    if not found[NUMBER].combine_chunks().equals(count_up(first, count)):
        raise ValueError("it is not exactly one object, or line")


def _shaped(columns: list[Any], schema: pa.Schema) -> pa.Table:
    """With the types of the schema; texts are checked to be valid UTF-8."""
    import pyarrow as pa

    cast = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    table = pa.Table.from_arrays(cast, schema=schema)
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ValueError(f"a text is not valid UTF-8: {error}") from error
    return table
