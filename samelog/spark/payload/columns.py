"""The columns of a query: Kafka's, in Spark's types, and from Arrow tables into them.

Spark takes a record batch only if its schema is exactly the one it was promised: order of columns,
types, nullability. Invariant: every batch that leaves a `Shape` has the one schema of its query.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from samelog.spark.errors import BadOption

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

ROWS = 1 << 15
"""Of one record batch, at most."""
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_KAFKA: list[tuple[str, DataType]] = [
    ("key", BinaryType()),
    ("value", BinaryType()),
    ("topic", StringType()),
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("timestamp", TimestampType()),
    ("timestampType", IntegerType()),
]
KAFKA_COLUMNS = [*(name for name, _ in _KAFKA), "headers"]
"""Of records as the log has them."""
_LEAST_MS, _MOST_MS = -(2**63) // 1000 + 1, 2**63 // 1000 - 1


def kafka_schema(*, include_headers: bool) -> StructType:
    """What Spark's Kafka source has."""
    fields = [StructField(name, kind) for name, kind in _KAFKA]
    if include_headers:
        fields.append(StructField("headers", ArrayType(_HEADER)))
    return StructType(fields)


def select_columns(full: StructType, names: tuple[str, ...]) -> StructType:
    """The columns with these names, in their order; all if there are none. Raises BadOption."""
    known = {field.name: field for field in full}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise BadOption(f"columns: there is no {', '.join(unknown)}; found: {', '.join(known)}")
    return StructType([known[name] for name in names]) if names else full


def check_schema(wanted: StructType, full: StructType) -> None:
    """A query may ask for some of the columns, in any order. Raises BadOption."""
    known = {field.name: field.dataType for field in full}
    for field in wanted:
        if field.name not in known:
            raise BadOption(f"schema: there is no column {field.name}; found: {', '.join(known)}")
        if field.dataType != known[field.name]:
            found = known[field.name].simpleString()
            raise BadOption(
                f"schema: column {field.name} is wanted as {field.dataType.simpleString()}, but is "
                f"{found}: ask for {found}, and cast it in the query"
            )


class Shape:
    """Turns tables of records into the record batches of one query."""

    def __init__(self, schema: StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self.schema: Any = to_arrow_schema(schema, timezone="UTC")

    def batches(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """The table's columns that are wanted, as Spark takes them."""
        import pyarrow as pa

        columns = [_as(table.column(field.name), field.type) for field in self.schema]
        shaped = pa.Table.from_arrays(columns, schema=self.schema)
        yield from shaped.to_batches(max_chunksize=ROWS)


def _as(column: Any, kind: Any) -> Any:
    if column.type == kind:
        return column
    return (
        _microseconds(column, kind)
        if str(column.type).startswith("timestamp")
        else column.cast(kind)
    )


def _microseconds(column: Any, kind: Any) -> Any:
    """Times that Spark cannot have (whoever wrote them may have written anything) are cut."""
    import pyarrow as pa
    from pyarrow import compute

    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        numbers = column.cast(pa.int64())
        within = compute.min_element_wise(compute.max_element_wise(numbers, _LEAST_MS), _MOST_MS)
        return within.cast(column.type).cast(kind)
