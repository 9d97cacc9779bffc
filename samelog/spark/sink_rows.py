"""Rows of topics' schemas as records: what a query writes with `valueFormat=schema`.

The columns that Kafka's records have (key, timestamp, headers) are those of the record; all others
are columns of the topic's schema. Invariant: a row becomes one record, or, where a value is an
Arrow stream, a part of one; a row that does not fit refuses the write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from samelog.spark.errors import BadOption

if TYPE_CHECKING:
    import pyarrow as pa

    from samelog.publisher.typed_rows import RowEncoder

OF_RECORDS = ("key", "timestamp", "headers")


def encoded(rows: pa.Table, encoder: RowEncoder, topic: str) -> pa.Table:
    """The rows as records, with the column value, and marks among the headers. Raises RowMisfit,
    NoSchema, BadOption.
    """
    import pyarrow as pa

    beside = [name for name in rows.schema.names if name in OF_RECORDS]
    columns = encoder.columns(rows.drop_columns(beside), None, None, None, {"topic": topic})
    values = pa.array(columns.values, pa.binary())
    if len(values) != len(rows) and beside:
        raise BadOption(
            f"a record of {topic} has many rows, so these have no {' and '.join(beside)} of their "
            "own: drop the columns"
        )
    table = rows.select(beside) if beside else pa.table({"value": values})
    if beside:
        table = table.append_column("value", values)
    return table if columns.headers is None else _with_headers(table, columns.headers)


def _with_headers(table: pa.Table, added: Sequence[Any]) -> pa.Table:
    import pyarrow as pa

    pairs = [[{"key": name, "value": value} for name, value in each or ()] for each in added]
    if "headers" in table.schema.names:
        given = table["headers"].to_pylist()
        pairs = [[*(own or ()), *mark] for own, mark in zip(given, pairs, strict=True)]
        table = table.drop_columns(["headers"])
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return table.append_column("headers", pa.array(pairs, kind))
