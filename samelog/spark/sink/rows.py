"""The columns that a query may write, and which of its rows go to which topic and partition.

Invariant: every row of a batch is in exactly one of its pieces, and the rows of a piece keep their
order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from samelog.spark.errors import BadOption

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

RowTarget = tuple[str | None, int | None]
"""What the columns topic and partition say."""
_BYTES = (BinaryType, StringType)
_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "value": _BYTES,
    "key": _BYTES,
    "topic": (StringType,),
    "partition": (IntegerType, LongType),
    "timestamp": (TimestampType,),
    "headers": (ArrayType,),
}
PASSED_OVER = ("offset", "timestampType")
"""Of records that were read: those that are written get others."""


class Piece(NamedTuple):
    """Rows of one topic, and of one partition unless their keys decide."""

    topic: str
    partition: int | None
    rows: pa.Table


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises BadOption where these columns cannot be written as records."""
    kinds = {field.name: field.dataType for field in schema}
    if "value" not in kinds:
        raise BadOption(f"a query that writes needs a column value; found: {', '.join(kinds)}")
    if topic is None and "topic" not in kinds:
        raise BadOption("the topic is missing: give the option topic, or a column topic")
    for name, kind in kinds.items():
        if name in PASSED_OVER:
            continue
        allowed = _COLUMNS.get(name)
        if allowed is None:
            known = ", ".join(_COLUMNS)
            raise BadOption(f"column {name} is no part of a record; allowed are: {known}")
        if not isinstance(kind, allowed):
            wanted = " or ".join(each().simpleString() for each in allowed if each is not ArrayType)
            wanted = wanted or "array<struct<key:string,value:binary>>"
            raise BadOption(f"column {name} is {kind.simpleString()}; it must be {wanted}")


def pieces(batch: pa.RecordBatch, topic: str | None) -> Iterator[Piece]:
    """The rows of a batch by where they go; `topic`: for all of them, whatever a column says.
    Raises BadOption.
    """
    import pyarrow as pa

    table = pa.Table.from_batches([batch])
    if topic is not None and "topic" in table.schema.names:
        table = table.drop_columns(["topic"])
    by = [name for name in ("topic", "partition") if name in table.schema.names]
    others = [name for name in table.schema.names if name not in (*by, *PASSED_OVER)]
    rows = _stamped(table.select(others))
    for (said, partition), part in _grouped(table.select(by), rows):
        where = topic or said
        if where is None:
            raise BadOption("a row has no topic: fill the column, or give the option topic")
        yield Piece(where, partition, part)


def _grouped(places: pa.Table, rows: pa.Table) -> Iterator[tuple[RowTarget, pa.Table]]:
    """The rows by what the columns topic and partition say of them; the sort keeps their order."""
    import pyarrow.compute as pc

    names = places.schema.names
    if not names:
        yield (None, None), rows
        return
    counted = places.group_by(names, use_threads=False).aggregate([([], "count_all")])
    if len(counted) > 1:
        by = [(name, "ascending") for name in names]
        rows = rows.take(pc.sort_indices(places, sort_keys=by))
        counted = counted.sort_by(by)
    begin = 0
    for group in counted.to_pylist():
        yield (group.get("topic"), group.get("partition")), rows.slice(begin, group["count_all"])
        begin += group["count_all"]


def _stamped(rows: pa.Table) -> pa.Table:
    """Without a column of times that holds none: such records get the time of writing. Raises
    BadOption.
    """
    if "timestamp" not in rows.schema.names:
        return rows
    missing = rows.column("timestamp").null_count
    if missing == len(rows):
        return rows.drop_columns(["timestamp"])
    if missing:
        raise BadOption(
            f"{missing} of {len(rows)} rows have no timestamp: fill the column in all of them, or "
            "drop it"
        )
    return rows
