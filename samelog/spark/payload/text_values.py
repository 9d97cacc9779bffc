"""Values that are JSON or CSV, all of a batch parsed by one call of Arrow's readers.

The values become lines of one text, so that a bad value could break out of its line and shift all
others. So each line carries its number, counted from a random one: who does not know that cannot
forge it, and a text whose numbers are not what they must be is parsed in halves.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from samelog.spark.payload.decoding import Parse, count_up

if TYPE_CHECKING:
    import pyarrow as pa

NUMBER, VALUE = "i", "v"
RANDOM_NUMBERS = 1 << 45


def json_parser(schema: pa.Schema) -> Parse:
    """Each value is a JSON object; members that the schema does not have are passed over, those
    that are missing are null. (`null` is a row of nulls.)
    """
    import pyarrow as pa

    fields = [field.with_type(_readable(field.type)) for field in schema]
    lines = pa.schema([(NUMBER, pa.int64()), (VALUE, pa.struct(fields))])
    return partial(_parse_json, lines, schema)


def _parse_json(lines: pa.Schema, schema: pa.Schema, values: pa.Array) -> pa.Table:
    import pyarrow as pa
    from pyarrow import json

    first = secrets.randbelow(RANDOM_NUMBERS)
    text = _join(b'{"i":', _numbers(first, len(values)), b',"v":', values, b"}\n")
    found = json.read_json(
        pa.BufferReader(text),
        read_options=json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=json.ParseOptions(explicit_schema=lines, unexpected_field_behavior="ignore"),
    )
    _check_numbers(found, first, len(values))
    return _shaped(found[VALUE].combine_chunks().flatten(), schema)


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


def _readable(kind: Any) -> Any:
    """What Arrow's reader of JSON makes of a type: it knows no dates, but texts that are ones."""
    import pyarrow as pa

    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_readable(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_readable(kind.value_type))
    return kind
