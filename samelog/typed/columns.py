"""Python values as one column of Arrow: exactly, or not at all.

pyarrow rounds in silence where it takes Python's values (1.5 becomes the integer 1, microseconds
go). Invariant: what comes out equals what was given; only float32 rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from samelog.typed.arrow_types import arrow_type, import_arrow
from samelog.typed.misfits import Misfit, RowMisfit, beginning
from samelog.typed.schema import Column
from samelog.typed.types import ColumnType, TypeKind

if TYPE_CHECKING:
    import pyarrow as pa

_CLASSES: dict[TypeKind, tuple[type, ...]] = {
    TypeKind.INTEGER: (Integral,),
    TypeKind.FLOAT: (Real,),
    TypeKind.STRING: (str,),
    TypeKind.BINARY: (bytes, bytearray, memoryview),
    TypeKind.DATE: (date,),
    TypeKind.TIMESTAMP: (datetime,),
    TypeKind.DECIMAL: (Decimal, Integral),
    TypeKind.LIST: (list, tuple),
}


def column_of(values: Sequence[Any], column: Column) -> pa.Array:
    """The values as the column's type; None is null. Raises RowMisfit, which names the row."""
    try:
        array = _array(values, column.type)
    except (ValueError, TypeError, OverflowError):
        raise RowMisfit(_find_misfit(values, column)) from None
    if array.null_count and not column.is_nullable:
        raise RowMisfit(_find_misfit(values, column))
    return array


def _find_misfit(values: Sequence[Any], column: Column) -> Misfit:
    """The first value that is none of the column: one by one, because it is rare."""
    for index, value in enumerate(values):
        if value is None and column.is_nullable:
            continue
        try:
            if value is not None:
                _array([value], column.type)
                continue
        except (ValueError, TypeError, OverflowError):
            pass
        return Misfit(index, column.name, column.type.text, beginning(value))
    raise ValueError(f"column {column.name!r} does not fit as a whole")


def _array(values: Sequence[Any], kind: ColumnType) -> Any:
    """Raises ValueError (pyarrow's errors are), TypeError, OverflowError."""
    _check_classes(values, kind)
    convert = _CONVERT.get(kind.kind)
    return convert(values, kind) if convert else import_arrow().array(values, arrow_type(kind))


def _check_classes(values: Sequence[Any], kind: ColumnType) -> None:
    for found in set(map(type, values)):
        if not _is_of(found, kind.kind):
            raise TypeError(f"{found.__name__} is no {kind.text}")


def _is_of(found: type, kind: TypeKind) -> bool:
    if found is type(None):
        return True
    if kind is TypeKind.BOOL:
        return found is bool or found.__name__ == "bool_"
    if issubclass(found, bool):
        return False
    if kind is TypeKind.DATE:
        return issubclass(found, date) and not issubclass(found, datetime)
    return issubclass(found, _CLASSES[kind])


def _floats(values: Sequence[Any], kind: ColumnType) -> Any:
    """Integers only where they are exact; a finite number stays finite."""
    arrow = import_arrow()
    exact = arrow.array(values, arrow.float64())
    if kind.bits == 64:
        return exact
    rounded = exact.cast(arrow.float32(), safe=False)
    for before, after in zip(values, rounded.to_pylist(), strict=True):
        if after is not None and math.isinf(after) and math.isfinite(before):
            raise OverflowError("too large for float32")
    return rounded


def _timestamps(values: Sequence[Any], kind: ColumnType) -> Any:
    arrow = import_arrow()
    for value in values:
        if value is not None and (value.utcoffset() is None) is bool(kind.zone):
            raise TypeError("times have a zone where the column has one, and nowhere else")
    finest = "ns" if any(getattr(value, "nanosecond", 0) for value in values) else "us"
    zone = kind.zone or None
    return arrow.array(values, arrow.timestamp(finest, tz=zone)).cast(arrow_type(kind))


def _lists(values: Sequence[Any], kind: ColumnType) -> Any:
    if kind.item is None:
        raise TypeError("a list has items")
    arrow = import_arrow()
    items = _array(list(chain.from_iterable(v for v in values if v is not None)), kind.item)
    offsets: list[int | None] = []
    end = 0
    for value in values:
        offsets.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return arrow.ListArray.from_arrays(
        arrow.array([*offsets, end], arrow.int32()), items, type=arrow_type(kind)
    )


def _decimals(values: Sequence[Any], kind: ColumnType) -> Any:
    exact = [None if value is None else Decimal(value) for value in values]
    return import_arrow().array(exact, arrow_type(kind))


def _bytes(values: Sequence[Any], kind: ColumnType) -> Any:
    data = [value if value is None else bytes(value) for value in values]
    return import_arrow().array(data, arrow_type(kind))


_CONVERT: dict[TypeKind, Callable[[Sequence[Any], ColumnType], Any]] = {
    TypeKind.FLOAT: _floats,
    TypeKind.TIMESTAMP: _timestamps,
    TypeKind.LIST: _lists,
    TypeKind.DECIMAL: _decimals,
    TypeKind.BINARY: _bytes,
}
