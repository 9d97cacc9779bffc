"""Typed columns instead of `value`: which ones, and what becomes of records that do not fit.

The payload's columns are those of the query's schema that are not Kafka's. Invariant: every record
gives a row (of an Arrow stream: as many as it has), with its place in the log beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType, StructField, StructType

from samelog.spark.errors import BadOption, CorruptValue
from samelog.spark.options import CorruptMode, ValueFormat, Values
from samelog.spark.payload.columns import kafka_schema
from samelog.spark.payload.decoding import Decoded, decode_each

if TYPE_CHECKING:
    import pyarrow as pa

    from samelog.spark.plan.offsets import PartitionName

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

    def check(self) -> None:
        """Raise BadOption if columns of such types cannot be decoded."""
        import pyarrow as pa

        example = pa.array([b"{}" if self.values.format is ValueFormat.JSON else b""], pa.binary())
        try:
            self._decode(example, self._arrow_schema())
        except pa.ArrowNotImplementedError as error:
            kind = self.values.format.value
            raise BadOption(f"valueFormat={kind} cannot have such a column: {error}") from error

    def unpack(self, table: pa.Table, name: PartitionName) -> pa.Table:
        """Records with the payload's columns. Raises CorruptValue."""
        values = table["value"].combine_chunks()
        decoded = self._decode(values, self._arrow_schema())
        self._refuse(decoded, table, name)
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

    def _arrow_schema(self) -> Any:
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self.schema, timezone="UTC")

    def _decode(self, values: pa.Array, schema: pa.Schema) -> Decoded:
        match self.values.format:
            case ValueFormat.JSON:
                from samelog.spark.payload.text_values import json_parser

                return decode_each(values, json_parser(schema), schema)
            case ValueFormat.CSV:
                from samelog.spark.payload.text_values import csv_parser

                return decode_each(values, csv_parser(schema), schema)
            case ValueFormat.AVRO:
                from samelog.spark.payload.binary_values import avro_parser

                return decode_each(values, avro_parser(schema, self.values.avro_schema), schema)
            case _:
                from samelog.spark.payload.binary_values import decode_tables

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
