"""Values that are Avro records, or Arrow streams of whole tables."""

from __future__ import annotations

import json
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from samelog.spark.errors import BadOption
from samelog.spark.payload.decoding import Decoded, Parse

if TYPE_CHECKING:
    import pyarrow as pa


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
