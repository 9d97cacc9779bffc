"""What is compared: columns, and the literals of a filter's text.

Invariant: a literal has the value that its text says, to the last digit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from samelog.typed.arrow_types import import_arrow

if TYPE_CHECKING:
    import pyarrow as pa

    Take = Callable[[pa.Table, pa.Table], Any]

EXPONENT_MOST = 400


class BadFilter(ValueError):
    """A text is no filter, or not one of these columns."""


@dataclass(frozen=True, slots=True)
class TypedText:
    """DATE '…' or TIMESTAMP '…'."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} '{self.text}'"


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

    @property
    def is_float(self) -> bool:
        """Whether it may be NaN."""
        return bool(import_arrow().types.is_floating(self.type))

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
        case "Neg" if isinstance(inner := literal(node.this), Decimal):
            return inner.copy_negate()  # as the minus sign would round
        case "Cast" if type(node.this).__name__ == "Literal" and node.this.is_string:
            return _typed_text(node)
    raise BadFilter(f"{node.sql()} is not in filters")


def _typed_text(node: Any) -> TypedText:
    kind = str(node.args["to"].this.name)
    if kind != "DATE" and not kind.startswith("TIMESTAMP"):
        raise BadFilter(f"{node.sql()} is not in filters")
    return TypedText(kind[:9], str(node.this.this))


def _number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise BadFilter(f"{text} is no number") from None
    if abs(number.adjusted()) > EXPONENT_MOST:
        raise BadFilter(f"{text} is out of range")
    return number
