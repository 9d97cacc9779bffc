"""The types that a column may have, by Arrow's names. Pure: a node may have no pyarrow.

Invariant: a type has one text, whatever way it was written; so equal schemas have equal texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

PRECISION_MOST = 38
UNITS = ("s", "ms", "us", "ns")
_TEXT = re.compile(r"([a-z]+\d*)(?:\[([^\[\]]*)\]|\(([^()]*)\)|<(.*)>)?")
_ZONE = re.compile(r"[A-Za-z0-9_+\-/:]{1,64}")


class Kind(Enum):
    """What values of a type are."""

    BOOL = "bool"
    INTEGER = "integer"
    FLOAT = "float"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    DECIMAL = "decimal"
    LIST = "list"


_INTEGERS = {
    f"{sign}int{bits}": (sign == "", bits) for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_PLAIN = {
    "bool": Kind.BOOL,
    "float32": Kind.FLOAT,
    "float64": Kind.FLOAT,
    "string": Kind.STRING,
    "binary": Kind.BINARY,
    "date32": Kind.DATE,
}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """`text` is Arrow's name of it; the other fields say the same in parts."""

    text: str
    kind: Kind
    bits: int = 0
    """Of integers and floats."""
    is_signed: bool = True
    unit: str = ""
    zone: str = ""
    precision: int = 0
    scale: int = 0
    item: ColumnType | None = None
    """Of lists."""

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest integer."""
        if self.is_signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1


def parse_type(text: str) -> ColumnType:
    """The type of a name such as `int64`, `timestamp[us, UTC]` or `list<string>`. Raises
    ValueError.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no type")
    name, brackets, parentheses, angles = match.groups()
    if name in _INTEGERS and name == text:
        is_signed, bits = _INTEGERS[name]
        return ColumnType(text, Kind.INTEGER, bits, is_signed)
    if name in _PLAIN and name == text:
        return ColumnType(text, _PLAIN[name], int(name[5:]) if name.startswith("float") else 0)
    if name == "timestamp" and brackets is not None:
        return _timestamp(text, brackets)
    if name == "decimal128" and parentheses is not None:
        return _decimal(text, parentheses)
    if name == "list" and angles is not None:
        return _list(text, angles)
    raise ValueError(f"{text!r} is no type that columns may have")


def _timestamp(text: str, inside: str) -> ColumnType:
    unit, _, zone = (part.strip() for part in inside.partition(","))
    zone = zone.removeprefix("tz=")
    if unit not in UNITS or (zone and not _ZONE.fullmatch(zone)):
        raise ValueError(f"{text!r}: a timestamp is one like timestamp[ms] or timestamp[us, UTC]")
    known = f"timestamp[{unit}, {zone}]" if zone else f"timestamp[{unit}]"
    return ColumnType(known, Kind.TIMESTAMP, unit=unit, zone=zone)


def _decimal(text: str, inside: str) -> ColumnType:
    numbers = [part.strip() for part in inside.split(",")]
    if len(numbers) != 2 or not all(part.isascii() and part.isdigit() for part in numbers):
        raise ValueError(f"{text!r}: a decimal is one like decimal128(18, 4)")
    precision, scale = map(int, numbers)
    if not 0 <= scale <= precision or not 1 <= precision <= PRECISION_MOST:
        raise ValueError(f"{text!r}: a decimal has 1 to {PRECISION_MOST} digits, scale included")
    known = f"decimal128({precision}, {scale})"
    return ColumnType(known, Kind.DECIMAL, precision=precision, scale=scale)


def _list(text: str, inside: str) -> ColumnType:
    item = parse_type(inside.removeprefix("item: "))
    if item.kind is Kind.LIST:
        raise ValueError(f"{text!r}: a list of lists is no type that columns may have")
    return ColumnType(f"list<{item.text}>", Kind.LIST, item=item)
