"""Values as columns: JSON or CSV, Avro records, Arrow streams of whole tables; some may be bad.

A parser takes all values or none, which is what makes it fast; values that it refuses are parsed in
halves, down to the bad ones (samelog.typed.values.halves). CSV of a batch is lines of one text for
one call of Arrow's reader, so that a bad value could break out of its line and shift all others. So
each line carries its number, counted from a random one: who does not know that cannot forge it, and
a text whose numbers are not what they must be is parsed in halves.

Invariant: there is a row for every value, in order, whatever they hold; a value that is bad never
changes what another one gives.
"""

from __future__ import annotations

import json
import secrets
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from samelog.spark.errors import BadOption
from samelog.typed.values.halves import Decoded, Parse, count_up

if TYPE_CHECKING:
    import pyarrow as pa


def avro_parser(schema: pa.Schema, written: str) -> Parse:
    """Each value is one record in Avro's binary encoding, without a header; `written` is the schema
    it was written with, as JSON. Fields are matched by name. Raises BadOption.
    """
    import fastavro

    try:
        writer: Any = fastavro.parse_schema(json.loads(written))
    except (ValueError, TypeError, RecursionError, fastavro.schema.SchemaParseException) as error:
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
