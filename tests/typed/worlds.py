"""Schemas and rows for property tests.

Invariant: every row that is drawn fits its schema.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from samelog.typed.schema import Column, Schema, SchemaFormat, make_schema
from samelog.typed.types import ColumnType, TypeKind, parse_type

PLAIN = ["bool", "int8", "int32", "int64", "uint16", "uint32", "float32", "float64", "string"]
OTHERS = ["binary", "date32", "timestamp[ms]", "timestamp[us, UTC]", "decimal128(9, 3)"]
WIDER = {
    narrow: [parse_type(each) for each in wide]
    for narrow, wide in {
        "int8": ["int32", "int64", "float64", "float32"],
        "int32": ["int64", "float64", "int8"],
        "int64": ["float64", "int32"],
        "uint16": ["int32", "uint32", "float64"],
        "uint32": ["int64", "int32"],
        "float32": ["float64"],
        "string": ["binary"],
        "binary": ["string"],
        "list<int32>": ["list<int64>", "list<float64>"],
        "list<string>": ["list<binary>"],
        "list<binary>": ["list<string>"],
    }.items()
}
"""Types that are tried in place of others: some are wider, some are not."""
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def types(value_format: SchemaFormat) -> st.SearchStrategy[ColumnType]:
    """Types that a format can hold."""
    scalars = [*PLAIN, *OTHERS, *([] if value_format is SchemaFormat.AVRO else ["uint64"])]
    found = st.sampled_from(scalars)
    if value_format is not SchemaFormat.CSV:
        found |= found.map("list<{}>".format)
    return found.map(parse_type)


@st.composite
def schemas(draw: st.DrawFn, value_format: SchemaFormat | None = None) -> Schema:
    """Any schema of up to five columns."""
    chosen = value_format or draw(st.sampled_from(SchemaFormat))
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5, unique=True))
    columns = [_column(draw, name, draw(types(chosen))) for name in names]
    return make_schema(chosen, tuple(columns))


def _column(draw: st.DrawFn, name: str, kind: ColumnType) -> Column:
    default = draw(st.none() | st.integers(0, 9)) if kind.kind is TypeKind.INTEGER else None
    return Column(name, kind, draw(st.booleans()), default)


def cells(kind: ColumnType) -> st.SearchStrategy[Any]:
    """Values of a type."""
    if kind.item is not None:
        return st.lists(st.none() | cells(kind.item), max_size=3)
    match kind.kind:
        case TypeKind.BOOL:
            return st.booleans()
        case TypeKind.INTEGER:
            return st.integers(*kind.limits)
        case TypeKind.FLOAT:
            return st.floats(allow_nan=False, allow_infinity=False, width=kind.bits)  # type: ignore[arg-type]
        case TypeKind.STRING:
            return TEXTS
        case TypeKind.BINARY:
            return st.binary(max_size=6)
        case TypeKind.DATE:
            return st.dates(date(1, 1, 1), date(9999, 12, 31))
        case TypeKind.TIMESTAMP:
            step = 1000 if kind.unit == "ms" else 1
            zones = st.just(UTC) if kind.zone else st.none()
            times = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=zones)  # noqa: DTZ001
            return times.map(lambda t: t.replace(microsecond=t.microsecond // step * step))
    return st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-3))


def rows(schema: Schema) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rows of a schema."""
    row = {
        column.name: st.none() | cells(column.type) if column.is_nullable else cells(column.type)
        for column in schema.columns
    }
    return st.lists(st.fixed_dictionaries(row), max_size=6)


@st.composite
def changed(draw: st.DrawFn, schema: Schema) -> Schema:
    """A version that is near another one: columns are gone, are new, or have other types."""
    columns = []
    for column in schema.columns:
        kinds = st.just(column.type) | st.sampled_from(WIDER.get(column.type.text, [column.type]))
        if draw(st.sampled_from(["keep", "keep", "keep", "drop"])) == "keep":
            columns.append(_column(draw, column.name, draw(kinds)))
    if draw(st.booleans()) or not columns:
        columns.append(_column(draw, "new", draw(types(schema.format))))
    return make_schema(schema.format, tuple(columns))
