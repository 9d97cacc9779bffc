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


class TypeKind(Enum):
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
    "bool": TypeKind.BOOL,
    "string": TypeKind.STRING,
    "binary": TypeKind.BINARY,
    "date32": TypeKind.DATE,
}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """`text` is Arrow's name of it; the other fields say the same in parts."""

    text: str
    kind: TypeKind
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


_SIMPLE = {
    **{name: ColumnType(name, _PLAIN[name]) for name in _PLAIN},
    **{
        name: ColumnType(name, TypeKind.INTEGER, bits, is_signed)
        for name, (is_signed, bits) in _INTEGERS.items()
    },
    **{f"float{bits}": ColumnType(f"float{bits}", TypeKind.FLOAT, bits) for bits in (32, 64)},
}


def parse_type(text: str) -> ColumnType:
    """The type of a name such as `int64`, `timestamp[us, UTC]` or `list<string>`. Raises
    ValueError.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no type")
    name, brackets, parentheses, angles = match.groups()
    if text in _SIMPLE:
        return _SIMPLE[text]
    if name == "timestamp" and brackets is not None:
        return _timestamp(text, brackets)
    if name == "decimal128" and parentheses is not None:
        return _decimal(text, parentheses)
    if name == "list" and angles is not None:
        return _list(text, angles)
    simple = ", ".join(_SIMPLE)
    raise ValueError(
        f"{text!r} is not a type of a column. Types are: {simple}, timestamp[ms, UTC], "
        "decimal128(18, 4), list<string>"
    )


def _timestamp(text: str, inside: str) -> ColumnType:
    unit, _, zone = (part.strip() for part in inside.partition(","))
    zone = zone.removeprefix("tz=")
    if unit not in UNITS or (zone and not _ZONE.fullmatch(zone)):
        raise ValueError(f"{text!r}: a timestamp is one like timestamp[ms] or timestamp[us, UTC]")
    known = f"timestamp[{unit}, {zone}]" if zone else f"timestamp[{unit}]"
    return ColumnType(known, TypeKind.TIMESTAMP, unit=unit, zone=zone)


def _decimal(text: str, inside: str) -> ColumnType:
    numbers = [part.strip() for part in inside.split(",")]
    if len(numbers) != 2 or not all(part.isascii() and part.isdigit() for part in numbers):
        raise ValueError(f"{text!r}: a decimal is one like decimal128(18, 4)")
    precision, scale = map(int, numbers)
    if not 0 <= scale <= precision or not 1 <= precision <= PRECISION_MOST:
        raise ValueError(f"{text!r}: a decimal has 1 to {PRECISION_MOST} digits, scale included")
    known = f"decimal128({precision}, {scale})"
    return ColumnType(known, TypeKind.DECIMAL, precision=precision, scale=scale)


def _list(text: str, inside: str) -> ColumnType:
    item = parse_type(inside.removeprefix("item: "))
    if item.kind is TypeKind.LIST:
        raise ValueError(f"{text!r}: a column cannot be a list of lists")
    return ColumnType(f"list<{item.text}>", TypeKind.LIST, item=item)
