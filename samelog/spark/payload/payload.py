"""Typed columns instead of `value`: which ones, and what becomes of records that do not fit.

The payload's columns are those of the query's schema that are not Kafka's. Invariant: every record
gives a row (of an Arrow stream: as many as it has), with its place in the log beside it.

The other columns are Kafka's, in Spark's types. Spark takes a record batch only if its schema is
exactly the one it was promised: order of columns, types, nullability. Invariant: every batch that
leaves a `Shape` has the one schema of its query.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import signature
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

from samelog.spark.errors import BadOption, CorruptValue
from samelog.spark.options import CorruptMode, LogAccess, ValueFormat, Values
from samelog.typed.values.halves import Decoded, decode_each

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

    from samelog.spark.payload.typed_values import SchemaValues
    from samelog.spark.plan.offsets import OffsetRange, PartitionName

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


def arrow_schema(schema: StructType) -> Any:
    """The same columns for Arrow, with times in UTC; Spark 4.1 has them so without being told."""
    from pyspark.sql.pandas.types import to_arrow_schema

    told: dict[str, Any] = (
        {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    )
    return to_arrow_schema(schema, **told)


class Shape:
    """Turns tables of records into the record batches of one query."""

    def __init__(self, schema: StructType) -> None:
        self.schema: Any = arrow_schema(schema)

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


CORRUPT = "_corrupt"
"""The column that has the bytes of a value that is not what the schema says."""


def metadata_schema(values: Values, *, include_headers: bool) -> StructType:
    """The columns beside the payload's."""
    kafka = kafka_schema(include_headers=include_headers)
    fields = [
        StructField(values.metadata_prefix + field.name, field.dataType)
        for field in kafka
        if field.name != "value"
    ]
    return StructType([*fields, StructField(CORRUPT, BinaryType())])


def typed_ddl(payload: str, values: Values, *, include_headers: bool) -> str:
    """The source's schema as Spark reads it: only the driver can parse the payload's, SQL too."""
    beside = metadata_schema(values, include_headers=include_headers)
    columns = [f"`{field.name}` {field.dataType.simpleString()}" for field in beside]
    return ", ".join([payload, *columns])


def split_schema(wanted: StructType, values: Values, *, include_headers: bool) -> StructType:
    """The payload's columns among those of a query. Raises BadOption."""
    beside = metadata_schema(values, include_headers=include_headers)
    known = {field.name: field.dataType for field in beside}
    names = [field.name for field in wanted]
    twice = {name for name in names if names.count(name) > 1}
    kinds = {field.name: field.dataType for field in wanted}
    other = {name for name, kind in kinds.items() if known.get(name, kind) != kind}
    if twice or other:
        both = ", ".join(sorted(twice | other))
        raise BadOption(
            f"the payload has columns that are also the record's: {both}; "
            'set metadataPrefix, to "kafka_" for example, to rename the record\'s'
        )
    payload = [field for field in wanted if field.name not in known]
    if not payload:
        raise BadOption("the schema has no column of the payload: leave valueFormat out")
    return StructType(payload)


@dataclass(frozen=True, slots=True)
class Payload:
    """Unpacks the values of one query."""

    values: Values
    schema: StructType
    typed: SchemaValues | None = None
    """What reads values by their topics' schemas, if they are to be."""

    @property
    def access(self) -> LogAccess | None:
        """What its topics' schemas say of how they are read; None: nothing."""
        return None if self.typed is None else self.typed.access

    def check(self) -> None:
        """Raise BadOption if columns of such types cannot be decoded."""
        import pyarrow as pa

        if self.typed is not None:
            return
        example = pa.array([b"{}" if self.values.format is ValueFormat.JSON else b""], pa.binary())
        try:
            self._decode(example, arrow_schema(self.schema))
        except pa.ArrowNotImplementedError as error:
            kind = self.values.format.value
            raise BadOption(f"valueFormat={kind} cannot have such a column: {error}") from error

    def unpack(self, table: pa.Table, read: OffsetRange) -> pa.Table:
        """Records of a range with the payload's columns. Raises CorruptValue."""
        values = table["value"].combine_chunks()
        if self.typed is not None:
            decoded = self.typed.decode(table, read, arrow_schema(self.schema))
        else:
            decoded = self._decode(values, arrow_schema(self.schema))
        self._refuse(decoded, table, read.name)
        beside = table.drop_columns(["value"])
        beside = beside.rename_columns(
            [self.values.metadata_prefix + column for column in beside.column_names]
        )
        beside = beside.append_column(CORRUPT, _bad_values(values, decoded))
        if decoded.sources is not None:
            beside = beside.take(decoded.sources)
        for field, column in zip(decoded.columns.schema, decoded.columns.columns, strict=True):
            beside = beside.append_column(field, column)
        return beside

    def _decode(self, values: pa.Array, schema: pa.Schema) -> Decoded:
        match self.values.format:
            case ValueFormat.JSON:
                from samelog.spark.payload.value_formats import json_parser

                return decode_each(values, json_parser(schema), schema)
            case ValueFormat.CSV:
                from samelog.spark.payload.value_formats import csv_parser

                return decode_each(values, csv_parser(schema), schema)
            case ValueFormat.AVRO if self.values.registry:
                from samelog.spark.payload.framed_values import framed_parser

                return decode_each(values, framed_parser(schema, self.values.registry), schema)
            case ValueFormat.AVRO:
                from samelog.spark.payload.value_formats import avro_parser

                return decode_each(values, avro_parser(schema, self.values.avro_schema), schema)
            case _:
                from samelog.spark.payload.value_formats import decode_tables

                return decode_tables(values, schema)

    def _refuse(self, decoded: Decoded, table: pa.Table, name: PartitionName) -> None:
        if decoded.bad and self.values.corrupt is CorruptMode.FAILFAST:
            row, reason = min(decoded.bad.items())
            raise CorruptValue(
                f"{name}, offset {table['offset'][row]}: the value is no "
                f"{self.values.format.value} of the schema: {reason} (mend the schema, or set mode "
                f"to PERMISSIVE to have such values in the column {CORRUPT})"
            )


def _bad_values(values: pa.Array, decoded: Decoded) -> pa.Array:
    """The bytes of bad values; null for the others."""
    import pyarrow as pa
    from pyarrow import compute

    if not decoded.bad:
        return pa.nulls(len(values), pa.binary())
    is_bad = pa.array([number in decoded.bad for number in range(len(values))])
    return compute.if_else(is_bad, values, None)
