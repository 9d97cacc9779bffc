"""Comparisons of columns with literals, and with each other.

Invariant: numbers are compared exactly; NaN equals NaN and is above all other numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from math import ceil, floor
from typing import TYPE_CHECKING, Any

from samelog.typed.arrow_types import import_arrow

if TYPE_CHECKING:
    import pyarrow as pa

    Take = Callable[[pa.Table, pa.Table], Any]

_FUNCTIONS = {
    "EQ": "equal",
    "NEQ": "not_equal",
    "LT": "less",
    "LTE": "less_equal",
    "GT": "greater",
    "GTE": "greater_equal",
}
EXPONENT_MOST = 400


class BadFilter(ValueError):
    """A text is no filter, or not one of these columns."""


@dataclass(frozen=True, slots=True)
class TypedText:
    """DATE '…' or TIMESTAMP '…'."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Operand:
    """A column, which is taken from tables, or a literal."""

    type: Any
    take: Take
    is_literal: bool = False
    value: Any = None

    @property
    def is_null(self) -> bool:
        """Whether it is the literal NULL."""
        return self.is_literal and self.value is None

    @classmethod
    def of_literal(cls, value: Any) -> Operand:
        """A literal; its type is Arrow's only for TRUE and FALSE."""
        kind = import_arrow().bool_() if isinstance(value, bool) else None
        return cls(kind, _no_table, is_literal=True, value=value)


def _no_table(rows: pa.Table, records: pa.Table) -> Any:
    raise BadFilter("a comparison has a column on one side")


def literal(node: Any) -> Any:
    """None, a bool, a text, a Decimal, or a TypedText. Raises BadFilter."""
    match type(node).__name__:
        case "Null":
            return None
        case "Boolean":
            return bool(node.this)
        case "Literal":
            return str(node.this) if node.is_string else _number(str(node.this))
        case "Neg":
            inner = literal(node.this)
            if isinstance(inner, Decimal):
                return -inner
        case "Cast" if type(node.this).__name__ == "Literal" and node.this.is_string:
            kind = str(node.args["to"].this.name)
            if kind == "DATE" or kind.startswith("TIMESTAMP"):
                return TypedText(kind[:9], str(node.this.this))
    raise BadFilter(f"{node.sql()} is not in filters")


def _number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise BadFilter(f"{text} is no number") from None
    if abs(number.adjusted()) > EXPONENT_MOST:
        raise BadFilter(f"{text} is out of range")
    return number


def compare(operator: str, one: Operand, other: Operand) -> Take:
    """The condition. Raises BadFilter."""
    if one.is_literal and not one.is_null:
        raise BadFilter("a comparison has a column on one side")
    if one.is_null or other.is_null:
        return _unknown
    if not other.is_literal:
        return _columns(operator, one, other)
    types = import_arrow().types
    value = other.value
    if types.is_integer(one.type) and isinstance(value, Decimal):
        return _integer(operator, one, value)
    scalar = _scalar(one.type, value)
    return partial(_with_scalar, operator, one, scalar, types.is_floating(one.type))


def _unknown(rows: pa.Table, records: pa.Table) -> Any:
    arrow = import_arrow()
    return arrow.nulls(records.num_rows, arrow.bool_())


def _columns(operator: str, one: Operand, other: Operand) -> Take:
    if one.type != other.type:
        raise BadFilter(f"{one.type} is not compared with {other.type}")
    is_float = import_arrow().types.is_floating(one.type)
    return partial(_two_columns, operator, one, other, is_float)


def _integer(operator: str, one: Operand, value: Decimal) -> Take:
    """With the next integer in the direction of the comparison; beyond the type: a constant."""
    if value != value.to_integral_value():
        if operator in ("EQ", "NEQ"):
            return partial(_constant, one, operator == "NEQ")
        is_below = operator in ("LT", "LTE")
        operator, number = ("LTE", floor(value)) if is_below else ("GTE", ceil(value))
    else:
        number = int(value)
    least, most = (-(1 << 63), (1 << 63) - 1)
    if "uint64" in str(one.type):
        least, most = 0, (1 << 64) - 1
    if least <= number <= most:
        kind = import_arrow().uint64() if least == 0 else import_arrow().int64()
        scalar = import_arrow().scalar(number, kind)
        return partial(_with_scalar, operator, one, scalar, False)  # noqa: FBT003
    is_above = number > most
    holds = operator == "NEQ" or ((operator in ("LT", "LTE")) is is_above and operator != "EQ")
    return partial(_constant, one, holds)


def _scalar(kind: Any, value: Any) -> Any:
    """A literal in the type of the column that it is compared with. Raises BadFilter."""
    arrow = import_arrow()
    types = arrow.types
    try:
        if isinstance(value, bool) and types.is_boolean(kind):
            return arrow.scalar(value)
        if isinstance(value, Decimal) and types.is_floating(kind):
            return arrow.scalar(float(value), arrow.float64())
        if isinstance(value, Decimal) and types.is_decimal(kind):
            return arrow.scalar(value)
        if isinstance(value, TypedText) and value.kind == _temporal(types, kind):
            return arrow.scalar(value.text).cast(kind)
        if isinstance(value, str) and types.is_string(kind):
            return arrow.scalar(value)
        if isinstance(value, str) and types.is_binary(kind):
            return arrow.scalar(value.encode(), kind)
    except (ValueError, OverflowError) as error:
        raise BadFilter(f"{value} is no {kind}: {error}") from error
    raise BadFilter(f"a column of {kind} is not compared with {value!r}")


def _temporal(types: Any, kind: Any) -> str:
    if types.is_date(kind):
        return "DATE"
    return "TIMESTAMP" if types.is_timestamp(kind) else ""


# --- evaluation --------------------------------------------------------------------------------


def _constant(one: Operand, holds: bool, rows: pa.Table, records: pa.Table) -> Any:
    """As it says, but for nulls."""
    from pyarrow import compute

    arrow = import_arrow()
    is_null = one.take(rows, records).is_null()
    return compute.if_else(is_null, arrow.scalar(None, arrow.bool_()), arrow.scalar(holds))


def _with_scalar(
    operator: str,
    one: Operand,
    scalar: Any,
    is_float: bool,
    rows: pa.Table,
    records: pa.Table,
) -> Any:
    from pyarrow import compute

    column = one.take(rows, records)
    if is_float:
        column = column.cast(import_arrow().float64())
    found = getattr(compute, _FUNCTIONS[operator])(column, scalar)
    if is_float and operator in ("GT", "GTE"):
        return compute.or_kleene(found, compute.is_nan(column))
    return found


def _two_columns(
    operator: str,
    one: Operand,
    other: Operand,
    is_float: bool,
    rows: pa.Table,
    records: pa.Table,
) -> Any:
    from pyarrow import compute

    left, right = one.take(rows, records), other.take(rows, records)
    found = getattr(compute, _FUNCTIONS[operator])(left, right)
    if not is_float:
        return found
    nan_left, nan_right = compute.is_nan(left), compute.is_nan(right)
    either = compute.or_(nan_left, nan_right)
    order = compute.subtract(nan_left.cast("int8"), nan_right.cast("int8"))
    zero = import_arrow().scalar(0, import_arrow().int8())
    return compute.if_else(either, getattr(compute, _FUNCTIONS[operator])(order, zero), found)
