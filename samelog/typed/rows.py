"""Rows of any kind as one table with a schema's columns: dicts, tuples, Arrow, pandas, Polars.

Invariant: a table with all rows, exactly as given, or a RowMisfit that names the first one that
does not fit, and nothing (docs/typed.md, T16 to T18).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from samelog.typed.arrow_types import arrow_schema, arrow_type, import_arrow
from samelog.typed.columns import column_of
from samelog.typed.misfits import Misfit, RowMisfit, beginning
from samelog.typed.schema import Column, Schema
from samelog.typed.types import TypeKind

if TYPE_CHECKING:
    import pyarrow as pa


def table_of(rows: Any, schema: Schema) -> pa.Table:
    """The rows: an iterable of dicts or of tuples, or a table of Arrow, pandas or Polars. Raises
    RowMisfit; TypeError for anything else.
    """
    arrow = import_arrow()
    if isinstance(rows, arrow.RecordBatch):
        return _from_table(arrow.Table.from_batches([rows]), schema)
    if isinstance(rows, arrow.Table):
        return _from_table(rows, schema)
    package = type(rows).__module__.partition(".")[0]
    if package == "pandas":
        return _from_table(arrow.Table.from_pandas(rows, preserve_index=False), schema)
    if package == "polars":
        return _from_table(rows.to_arrow(), schema)
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise TypeError(f"rows are dicts, tuples or a table, not {type(rows).__name__}")
    return _from_rows(list(rows), schema)


def _from_rows(rows: Sequence[Any], schema: Schema) -> pa.Table:
    for index, row in enumerate(rows):
        problem = _shape_problem(row, schema)
        if problem is not None:
            raise RowMisfit(Misfit(index, problem[0], problem[1], beginning(row)))
    columns = [
        column_of([_cell(row, place, column) for row in rows], column)
        for place, column in enumerate(schema.columns)
    ]
    return import_arrow().Table.from_arrays(columns, schema=arrow_schema(schema))


def _shape_problem(row: Any, schema: Schema) -> tuple[str, str] | None:
    """The column and what was expected, where a row has others than the schema."""
    if isinstance(row, Mapping):
        if row.keys() <= schema.by_name.keys():
            return None
        unknown = next(name for name in row if name not in schema.by_name)
        return str(unknown), "a column of the schema"
    if isinstance(row, tuple | list):
        count = len(schema.columns)
        return None if len(row) == count else ("", f"a row of {count} columns")
    return "", "a dict or a tuple"


def _cell(row: Any, place: int, column: Column) -> Any:
    return row.get(column.name, column.default) if isinstance(row, Mapping) else row[place]


def _from_table(table: pa.Table, schema: Schema) -> pa.Table:
    unknown = [name for name in table.schema.names if name not in schema.by_name]
    if unknown:
        raise RowMisfit(Misfit(0, unknown[0], "a column of the schema", "the table has it"))
    columns = [_column_of_table(table, column) for column in schema.columns]
    return import_arrow().Table.from_arrays(columns, schema=arrow_schema(schema))


def _column_of_table(table: pa.Table, column: Column) -> Any:
    arrow = import_arrow()
    kind = arrow_type(column.type)
    if column.name not in table.schema.names:
        return _lacking(table.num_rows, column)
    found = table.column(column.name)
    if arrow.types.is_dictionary(found.type):
        found = found.cast(found.type.value_type)
    if found.null_count and not column.is_nullable:
        place = found.is_null().index(arrow.scalar(True)).as_py()  # noqa: FBT003
        raise RowMisfit(Misfit(place, column.name, column.type.text, "None"))
    if found.type == kind:
        return found
    if not _may_cast(arrow, found.type, column):
        raise RowMisfit(
            Misfit(0, column.name, column.type.text, f"the table's column is {found.type}")
        )
    return _cast(found, kind, column)


def _lacking(rows: int, column: Column) -> Any:
    arrow, kind = import_arrow(), arrow_type(column.type)
    if not column.may_lack and rows:
        raise RowMisfit(Misfit(0, column.name, column.type.text, "the column is missing"))
    return arrow.chunked_array([arrow.repeat(arrow.scalar(column.default, kind), rows)], kind)


def _may_cast(arrow: Any, found: Any, column: Column) -> bool:
    """Within one kind of values, where a cast is exact or raises. A column of nulls is any."""
    types, kind = arrow.types, column.type.kind
    if types.is_null(found):
        return True
    if kind is TypeKind.TIMESTAMP and types.is_timestamp(found):
        return (found.tz is not None) is bool(column.type.zone)
    return any(getattr(types, f"is_{name}")(found) for name in _CAST_FROM.get(kind, ()))


_CAST_FROM: dict[TypeKind, tuple[str, ...]] = {
    TypeKind.INTEGER: ("integer",),
    TypeKind.FLOAT: ("floating", "integer"),
    TypeKind.STRING: ("string", "large_string", "string_view"),
    TypeKind.BINARY: ("binary", "large_binary", "binary_view", "fixed_size_binary"),
    TypeKind.DATE: ("date",),
    TypeKind.DECIMAL: ("decimal", "integer"),
    TypeKind.LIST: ("list", "large_list"),
}
"""What Arrow's columns may be, by its names."""


def _cast(found: Any, kind: Any, column: Column) -> Any:
    """Raises RowMisfit with the first row that does not fit."""
    try:
        return _cast_exactly(found, kind)
    except ValueError:
        pass
    for index in range(len(found)):
        one = found.slice(index, 1)
        try:
            _cast_exactly(one, kind)
        except ValueError:
            shown = beginning(one[0].as_py())
            raise RowMisfit(Misfit(index, column.name, column.type.text, shown)) from None
    raise ValueError(f"column {column.name!r} does not fit as a whole")


def _cast_exactly(found: Any, kind: Any) -> Any:
    """Arrow checks integers, times and decimals itself; a float64 that float32 lacks is infinite
    without an error.
    """
    arrow = import_arrow()
    cast = found.cast(kind)
    if kind == arrow.float32() and arrow.types.is_float64(found.type):
        from pyarrow import compute

        differs = compute.not_equal(compute.is_inf(cast), compute.is_inf(found))
        if compute.any(differs).as_py():
            raise ValueError("too large for float32")
    return cast
