"""A query's filters as conditions that nodes evaluate (docs/typed.md, "Filters").

Spark still applies every filter to what comes, so what has no exact counterpart stays with it.
Invariant: a condition is true of the rows of which its filter is, and of no others (rule typed.17).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

COMPARED: dict[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "IS NOT DISTINCT FROM",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
LIKE: dict[type[Filter], str] = {
    StringContains: "%{}%",
    StringEndsWith: "%{}",
    StringStartsWith: "{}%",
}


def conditions(filters: Iterable[Filter], columns: Collection[str]) -> list[str]:
    """Those of filters on these columns that can be said exactly."""
    found = (_condition(each, columns) for each in filters)
    return [text for text in found if text is not None]


def _condition(each: Filter, columns: Collection[str]) -> str | None:
    if isinstance(each, Not):
        inner = _condition(each.child, columns)
        return None if inner is None else f"NOT ({inner})"
    path: Any = getattr(each, "attribute", ())
    if len(path) != 1 or path[0] not in columns:
        return None
    column = '"' + path[0].replace('"', '""') + '"'
    if isinstance(each, IsNull | IsNotNull):
        return f"{column} IS {'NOT ' * isinstance(each, IsNotNull)}NULL"
    if isinstance(each, In):
        return _in(column, each.value)
    if isinstance(each, StringContains | StringEndsWith | StringStartsWith):
        return _like(column, LIKE[type(each)], each.value)
    sign, value = COMPARED.get(type(each)), _literal(getattr(each, "value", None))
    return None if sign is None or value is None else f"{column} {sign} {value}"


def _in(column: str, values: Iterable[Any]) -> str | None:
    """What equals null is unknown: such a value never decides, but in NOT."""
    found = ["NULL" if value is None else _literal(value) for value in values]
    texts = [text for text in found if text is not None]
    return f"{column} IN ({', '.join(texts)})" if texts and len(texts) == len(found) else None


def _like(column: str, pattern: str, text: str) -> str:
    for sign in "\\%_":
        text = text.replace(sign, "\\" + sign)
    return f"{column} LIKE {_text(pattern.format(text))} ESCAPE '\\'"


def _literal(value: Any) -> str | None:
    """None: it has no exact counterpart."""
    match value:
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case str():
            return _text(value)
        case float() if isfinite(value):
            return format(Decimal(repr(value)), "f")
        case Decimal() if value.is_finite():
            return format(value, "f")
        case date() if not isinstance(value, datetime):
            return f"DATE '{value.isoformat()}'"
        case _:
            return None


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
