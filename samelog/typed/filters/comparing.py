"""Comparisons of columns with literals, and with each other.

Invariant: numbers and times are compared exactly; NaN equals NaN and is above all other numbers.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from samelog.typed.arrow_types import import_arrow
from samelog.typed.filters.operands import BadFilter, Operand
from samelog.typed.filters.steps import Steps, place_of, steps_of

if TYPE_CHECKING:
    import pyarrow as pa

    from samelog.typed.filters.operands import Take

_FUNCTIONS = {
    "EQ": "equal",
    "NEQ": "not_equal",
    "LT": "less",
    "LTE": "less_equal",
    "GT": "greater",
    "GTE": "greater_equal",
}


def compare(operator: str, one: Operand, other: Operand) -> Take:
    """The condition. Raises BadFilter."""
    if one.is_literal and not one.is_null:
        raise BadFilter("a comparison has a column on one side")
    if one.is_null or other.is_null:
        return _unknown
    if not other.is_literal:
        return _columns(operator, one, other)
    steps = steps_of(one.type)
    if steps is not None:
        return _among_steps(operator, one, steps, other.value)
    return partial(_with_scalar, operator, one, _scalar(one.type, other.value))


def _unknown(rows: pa.Table, records: pa.Table) -> Any:
    arrow = import_arrow()
    return arrow.nulls(records.num_rows, arrow.bool_())


def _columns(operator: str, one: Operand, other: Operand) -> Take:
    types = import_arrow().types
    if one.type != other.type or types.is_list(one.type):
        raise BadFilter(f"{one.type} is not compared with {other.type}")
    return partial(_two_columns, operator, one, other)


def _among_steps(operator: str, one: Operand, steps: Steps, value: Any) -> Take:
    """With the next step in the direction of the comparison; beyond the type: a constant."""
    number = place_of(value, one.type) / steps.size
    is_below = operator in ("LT", "LTE")
    if number.denominator != 1:
        if operator in ("EQ", "NEQ"):
            return partial(_constant, one, operator == "NEQ")
        operator = "LTE" if is_below else "GTE"
    step = math.floor(number) if is_below else math.ceil(number)
    if steps.least <= step <= steps.most:
        return partial(_with_scalar, operator, one, steps.scalar(step))
    is_above = step > steps.most
    holds = operator == "NEQ" or (operator != "EQ" and is_below is is_above)
    return partial(_constant, one, holds)


def _scalar(kind: Any, value: Any) -> Any:
    """A literal in the type of the column that it is compared with. Raises BadFilter."""
    arrow = import_arrow()
    types = arrow.types
    if isinstance(value, bool) and types.is_boolean(kind):
        return arrow.scalar(value)
    if isinstance(value, Decimal) and types.is_floating(kind):
        return _float(kind, value)
    if isinstance(value, str) and (types.is_string(kind) or types.is_binary(kind)):
        try:
            return arrow.scalar(value.encode(), arrow.binary()).cast(kind)
        except UnicodeEncodeError as error:
            raise BadFilter(f"a text is no UTF-8: {error}") from error
    raise BadFilter(f"a column of {kind} is not compared with {value}")


def _float(kind: Any, value: Decimal) -> Any:
    number = import_arrow().scalar(float(value), kind)
    if math.isinf(number.as_py()):
        raise BadFilter(f"{value} is out of range for {kind}")
    return number


# --- evaluation --------------------------------------------------------------------------------


def _constant(one: Operand, holds: bool, rows: pa.Table, records: pa.Table) -> Any:
    """As it says, but for nulls."""
    from pyarrow import compute

    arrow = import_arrow()
    is_null = one.take(rows, records).is_null()
    return compute.if_else(is_null, arrow.scalar(None, arrow.bool_()), arrow.scalar(holds))


def _with_scalar(
    operator: str, one: Operand, scalar: Any, rows: pa.Table, records: pa.Table
) -> Any:
    from pyarrow import compute

    column = one.take(rows, records)
    found = getattr(compute, _FUNCTIONS[operator])(column, scalar)
    if one.is_float and operator in ("GT", "GTE"):
        return compute.or_kleene(found, compute.is_nan(column))
    return found


def _two_columns(
    operator: str, one: Operand, other: Operand, rows: pa.Table, records: pa.Table
) -> Any:
    from pyarrow import compute

    left, right = one.take(rows, records), other.take(rows, records)
    compared = getattr(compute, _FUNCTIONS[operator])
    found = compared(left, right)
    if not one.is_float:
        return found
    nan_left, nan_right = compute.is_nan(left), compute.is_nan(right)
    either = compute.or_(nan_left, nan_right)
    order = compute.subtract(nan_left.cast("int8"), nan_right.cast("int8"))
    zero = import_arrow().scalar(0, import_arrow().int8())
    return compute.if_else(either, compared(order, zero), found)
