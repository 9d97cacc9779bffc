"""Types whose values are whole steps: integers, decimals, dates, times.

A literal lies on a step or between two; so it is compared exactly, whatever its digits and whatever
the column's unit. Invariant: nothing is rounded, and no number is too large to be compared with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from samelog.typed.arrow_types import import_arrow
from samelog.typed.filters.operands import BadFilter, TypedText

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
DAY = 86_400 * 10**9
_EXACT = Context(prec=80)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))? ?(Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Steps:
    """The values of a type: `size` times each integer from `least` to `most`."""

    type: Any
    size: Fraction
    least: int
    most: int

    def scalar(self, number: int) -> Any:
        """Arrow's value of so many steps."""
        arrow = import_arrow()
        types = arrow.types
        if types.is_decimal(self.type):
            return arrow.scalar(Decimal(number).scaleb(-self.type.scale, _EXACT), self.type)
        if types.is_date(self.type):
            return arrow.scalar(number, arrow.int32()).cast(self.type)
        return arrow.scalar(number, self.type)


def steps_of(kind: Any) -> Steps | None:
    """The steps of one of Arrow's types; None: it has none."""
    types = import_arrow().types
    if types.is_integer(kind):
        bits = kind.bit_width
        if types.is_unsigned_integer(kind):
            return Steps(kind, Fraction(1), 0, (1 << bits) - 1)
        return Steps(kind, Fraction(1), *_signed(bits))
    if types.is_decimal(kind):
        most = 10**kind.precision - 1
        return Steps(kind, Fraction(1, 10**kind.scale), -most, most)
    if types.is_date(kind):
        return Steps(kind, Fraction(DAY), *_signed(32))
    if types.is_timestamp(kind):
        return Steps(kind, Fraction(NANOSECONDS[kind.unit]), *_signed(64))
    return None


def _signed(bits: int) -> tuple[int, int]:
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def place_of(value: Any, kind: Any) -> Fraction:
    """Where a literal is among a type's values, in ones or nanoseconds. Raises BadFilter."""
    types = import_arrow().types
    is_time = types.is_date(kind) or types.is_timestamp(kind)
    if isinstance(value, TypedText) and is_time:
        has_zone = types.is_timestamp(kind) and kind.tz is not None
        return _nanoseconds(value, has_zone=has_zone)
    if isinstance(value, Decimal) and not is_time:
        return Fraction(value)
    raise BadFilter(f"a column of {kind} is not compared with {value}")


def _nanoseconds(value: TypedText, *, has_zone: bool) -> Fraction:
    """Since 1970; a time without a zone is UTC, beside columns with and without one."""
    match = _TIME.fullmatch(value.text.strip())
    if match is None or (value.kind == "DATE" and match[2]):
        raise BadFilter(f"{value} is none, as in DATE '2026-11-23'")
    day, time, fraction, zone = match.groups()
    if zone and not has_zone:
        raise BadFilter(f"{value} has a zone, and the column has none")
    try:
        found = datetime.fromisoformat(f"{day}T{time or '00:00'}{zone or 'Z'}")
    except ValueError as error:
        raise BadFilter(f"{value} is none: {error}") from error
    since = found - _EPOCH
    seconds = since.days * 86_400 + since.seconds
    return Fraction(seconds * 10**9 + int((fraction or "").ljust(9, "0")))
