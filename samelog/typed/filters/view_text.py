"""The text of a view, `SELECT columns FROM topic WHERE condition`, taken apart.

Invariant: what a view's text says and this does not name is refused; the condition is the text's
own, to the letter, and means what it means in any filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samelog.format.arrow import ArrowMissing
from samelog.typed.filters.filter import RECORD, TEXT_BYTES, parse_condition
from samelog.typed.filters.operands import BadFilter

_EXAMPLE = "as in SELECT symbol, price FROM ticks WHERE price > 100"


@dataclass(frozen=True, slots=True)
class ViewText:
    """`columns` None: all. `where` empty: all rows."""

    base: str
    columns: tuple[str, ...] | None
    where: str


def parse_view(text: str) -> ViewText:
    """A view's text. Raises BadFilter, ArrowMissing."""
    if len(text.encode("utf-8", "replace")) > 2 * TEXT_BYTES:
        raise BadFilter(f"a view's text has at most {2 * TEXT_BYTES} bytes")
    head, where = _split(text)
    select = _parsed(head)
    if type(select).__name__ != "Select":
        raise BadFilter(f"a view is one SELECT, {_EXAMPLE}")
    said = {part for part, value in select.args.items() if value and part != "kind"}
    if not said <= {"expressions", "from", "from_"}:
        raise BadFilter(f"a view has columns, FROM and WHERE, and no more, {_EXAMPLE}")
    return ViewText(_base(select), _columns(select), where)


def _split(text: str) -> tuple[str, str]:
    """What is before WHERE, and what is behind it."""
    tokens = _tokens(text)
    for token in tokens:
        if token.token_type.name == "WHERE":
            return text[: token.start], text[token.end + 1 :].strip().rstrip(";").strip()
    return text.strip().rstrip(";"), ""


def _tokens(text: str) -> list[Any]:
    try:
        from sqlglot.dialects.dialect import Dialect
        from sqlglot.errors import SqlglotError
    except ImportError as error:
        raise ArrowMissing("views need sqlglot: install samelog with the extra 'typed'") from error
    try:
        found: list[Any] = Dialect.get_or_raise("duckdb").tokenize(text)
    except (SqlglotError, RecursionError, ValueError) as error:
        raise BadFilter(f"no SELECT, {_EXAMPLE}") from error
    return found


def _parsed(head: str) -> Any:
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import SqlglotError

    if head.count("("):
        raise BadFilter(f"a view has columns, and computes none, {_EXAMPLE}")
    try:
        found = Dialect.get_or_raise("duckdb").parse(head)
    except (SqlglotError, RecursionError, ValueError) as error:
        raise BadFilter(f"no SELECT, {_EXAMPLE}") from error
    if len(found) != 1 or found[0] is None:
        raise BadFilter(f"a view is one SELECT, {_EXAMPLE}")
    return found[0]


def _base(select: Any) -> str:
    source = select.args.get("from_") or select.args.get("from")
    table: Any = None if source is None else source.this
    said = [] if table is None else [part for part, value in table.args.items() if value]
    if type(table).__name__ != "Table" or said != ["this"]:
        raise BadFilter(
            f'FROM names one topic, {_EXAMPLE}; names with signs are quoted: FROM "my-topic"'
        )
    return str(table.name)


def _columns(select: Any) -> tuple[str, ...] | None:
    found = select.expressions
    if len(found) == 1 and type(found[0]).__name__ == "Star":
        return None
    for each in found:
        if type(each).__name__ != "Column" or each.table:
            raise BadFilter(f"{each.sql()} is no column, {_EXAMPLE}")
    return tuple(each.name for each in found)


def names_in(where: str) -> set[str]:
    """The columns of the schema that a condition names. Raises BadFilter."""
    if not where:
        return set()
    found = parse_condition(where).find_all(_column_type())
    return {column.name for column in found} - {*RECORD}


def _column_type() -> Any:
    from sqlglot import exp

    return exp.Column
