"""JSON objects as columns that a query names, decoded as nodes and subscribers decode them.

A topic's schema says which members an object has, and which may be missing; a query names the
columns that it wants. Members that it does not name are skipped, missing ones are null, and columns
may be structs. Invariant: a member gives the value that `JsonCodec` gives for a column of its type,
or does not fit for both (docs/typed.md, T15).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from samelog.typed.arrow_types import column_type, import_arrow
from samelog.typed.values.json_values import finish_cells, json_type

if TYPE_CHECKING:
    import pyarrow as pa


class JsonColumns:
    """The columns of a query. `read` raises ValueError if a value does not fit."""

    def __init__(self, schema: pa.Schema) -> None:
        """Raises ArrowNotImplementedError: a column has a type that JSON has no values for."""
        self._schema = schema
        self._decode = msgspec.json.Decoder(_struct_of(tuple(schema))).decode

    def read(self, values: pa.Array) -> pa.Table:
        """A row for each of the values, none of which is null."""
        arrow = import_arrow()
        try:
            rows = [self._decode(value.as_buffer()) for value in values]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(str(error)) from None
        try:
            columns = _finish_fields(rows, list(self._schema))
            return arrow.Table.from_arrays(columns, schema=self._schema)
        except (TypeError, OverflowError) as error:
            raise ValueError(str(error)) from None


@lru_cache(maxsize=64)
def json_columns(schema: pa.Schema) -> JsonColumns:
    """The decoder of these columns."""
    return JsonColumns(schema)


def _struct_of(fields: Sequence[Any]) -> type[msgspec.Struct]:
    """A struct of these fields, which may all be missing; its own names cannot clash."""
    return msgspec.defstruct(
        "Row",
        [(f"c{place}", _type_of(field.type) | None, None) for place, field in enumerate(fields)],
        rename={f"c{place}": field.name for place, field in enumerate(fields)},
        frozen=True,
        gc=False,
    )


def _type_of(kind: Any) -> Any:
    types = import_arrow().types
    if types.is_struct(kind):
        return _struct_of([kind.field(place) for place in range(kind.num_fields)])
    if types.is_list(kind):
        return list[_type_of(kind.value_type) | None]  # type: ignore[misc]
    try:
        return json_type(column_type(kind))
    except ValueError as error:
        raise import_arrow().ArrowNotImplementedError(f"JSON conversion: {error}") from error


def _finish_fields(rows: Sequence[Any], fields: Sequence[Any]) -> list[Any]:
    cells = [None if row is None else msgspec.structs.astuple(row) for row in rows]
    return [
        _finish([None if row is None else row[place] for row in cells], field.type)
        for place, field in enumerate(fields)
    ]


def _finish(cells: Sequence[Any], kind: Any) -> Any:
    """The cells of a column in its type. Raises ValueError, TypeError, OverflowError."""
    arrow = import_arrow()
    if arrow.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        mask = arrow.array([cell is None for cell in cells], arrow.bool_())
        return arrow.StructArray.from_arrays(
            _finish_fields(cells, fields), fields=fields, mask=mask
        )
    if arrow.types.is_list(kind):
        return _finish_lists(cells, kind)
    return finish_cells(cells, column_type(kind)).cast(kind)


def _finish_lists(cells: Sequence[Any], kind: Any) -> Any:
    arrow = import_arrow()
    offsets: list[int | None] = []
    items: list[Any] = []
    for cell in cells:
        offsets.append(None if cell is None else len(items))
        items += cell or ()
    places = arrow.array([*offsets, len(items)], arrow.int32())
    return arrow.ListArray.from_arrays(places, _finish(items, kind.value_type), type=kind)
