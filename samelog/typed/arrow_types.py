"""Schemas as pyarrow has them, and Arrow's schemas as ours; pyarrow is imported when needed.

Invariant: there and back gives the same columns.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from samelog.format.arrow import ArrowMissing
from samelog.typed.schema import BadSchema, Column, Schema, SchemaFormat, make_schema
from samelog.typed.types import ColumnType, TypeKind, parse_type

if TYPE_CHECKING:
    import pyarrow as pa


def import_arrow() -> Any:
    """The module pyarrow. Raises ArrowMissing."""
    try:
        import pyarrow as arrow
    except ImportError as error:
        raise ArrowMissing(
            "typed topics need pyarrow: install samelog with the extra 'typed'"
        ) from error
    return arrow


@lru_cache(maxsize=256)
def arrow_type(kind: ColumnType) -> Any:
    """Arrow's type."""
    arrow = import_arrow()
    match kind.kind:
        case TypeKind.TIMESTAMP:
            return arrow.timestamp(kind.unit, tz=kind.zone or None)
        case TypeKind.DECIMAL:
            return arrow.decimal128(kind.precision, kind.scale)
        case TypeKind.LIST if kind.item is not None:
            return arrow.list_(arrow_type(kind.item))
        case TypeKind.BOOL:
            return arrow.bool_()
        case _:
            return getattr(arrow, kind.text)()


@lru_cache(maxsize=256)
def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns as Arrow's fields; nullable as in the schema."""
    arrow = import_arrow()
    return arrow.schema(
        [
            arrow.field(column.name, arrow_type(column.type), nullable=column.is_nullable)
            for column in schema.columns
        ]
    )


def from_arrow(found: pa.Schema, value_format: SchemaFormat = SchemaFormat.ARROW) -> Schema:
    """Arrow's fields as a schema. Raises BadSchema: a type that columns may not have."""
    return make_schema(value_format, tuple(_column(field) for field in found))


@lru_cache(maxsize=256)
def column_type(kind: pa.DataType) -> ColumnType:
    """The type of a column that has Arrow's type. Raises ValueError."""
    return parse_type(_text(kind))


def _column(field: Any) -> Column:
    try:
        kind = column_type(field.type)
    except ValueError as error:
        raise BadSchema(f"column {field.name!r}: {error}") from error
    return Column(field.name, kind, field.nullable)


def _text(kind: Any) -> str:
    types = import_arrow().types
    if types.is_list(kind) or types.is_large_list(kind):
        return f"list<{_text(kind.value_type)}>"
    return _TEXTS.get(str(kind), str(kind))


_TEXTS = {
    "double": "float64",
    "float": "float32",
    "halffloat": "float16",
    "date32[day]": "date32",
    "large_string": "string",
    "string_view": "string",
    "large_binary": "binary",
    "binary_view": "binary",
}
