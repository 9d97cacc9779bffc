"""A filter's text, as a function of tables: one meaning for Python, command line, Spark and views.

sqlglot parses; what is not of the documented subset is refused by name. Conditions are evaluated by
pyarrow with SQL's three truth values. Invariant: a row passes only where the condition is true;
tests hold every condition against DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from samelog.format.arrow import ArrowMissing
from samelog.typed.arrow_types import import_arrow
from samelog.typed.filters.comparing import compare
from samelog.typed.filters.like import expression_of
from samelog.typed.filters.operands import BadFilter, Operand, literal

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_BYTES = 8 << 10
NODES_MOST = 2048
DEPTH_MOST = 64
NESTING_MOST = 128
"""What the parser recurses into is counted before it is parsed."""
Condition = Callable[["pa.Table", "pa.Table"], Any]
"""From rows and their records to true, false or null by row."""
RECORD = {"_key": "key", "_offset": "offset", "_timestamp": "timestamp", "_partition": "partition"}
"""Names in filters of what every record has."""
_FLIPPED = {"EQ": "EQ", "NEQ": "NEQ", "LT": "GT", "LTE": "GTE", "GT": "LT", "GTE": "LTE"}
_PLAIN = {"this", "expression"}
_PARTS = {
    "Anonymous": {"this", "expressions"},
    "Between": {"this", "low", "high"},
    "Cast": {"this", "to"},
    "Identifier": {"this", "quoted"},
    "In": {"this", "expressions"},
    "Like": {"this", "expression", "negate"},
    "Literal": {"this", "is_string"},
}
"""What is looked at of each part of a condition; one that says more is refused."""


class Filter:
    """A condition over rows of these columns; `rows` may have none. Raises BadFilter."""

    def __init__(self, text: str, rows: pa.Schema, records: pa.Schema) -> None:
        self.text = text
        self._rows, self._records = rows, records
        self._condition = self._compile(parse_condition(text))

    def mask(self, rows: pa.Table, records: pa.Table) -> Any:
        """True for the rows that pass; `records` has keys, offsets and headers of the same rows."""
        from pyarrow import compute

        found = self._condition(rows, records)
        return compute.fill_null(found, fill_value=False)

    def _compile(self, node: Any) -> Condition:
        name = type(node).__name__
        match name:
            case "Paren":
                return self._compile(node.this)
            case "And" | "Or":
                join = "and_kleene" if name == "And" else "or_kleene"
                return partial(_joined, join, [self._compile(part) for part in node.flatten()])
            case "Not":
                return partial(_inverted, self._compile(node.this))
        if name in _FLIPPED:
            return self._comparison(name, node.this, node.expression)
        return _PREDICATES.get(name, Filter._truth)(self, node)

    def _truth(self, node: Any) -> Condition:
        """A condition that is no comparison: TRUE, FALSE, NULL or a column of bool."""
        arrow = import_arrow()
        operand = self._operand(node)
        if operand.is_null or operand.type == arrow.bool_():
            return partial(_values, operand)
        raise BadFilter(f"{node.sql()} is no condition")

    def _comparison(self, operator: str, left: Any, right: Any) -> Condition:
        one, other = self._operand(left), self._operand(right)
        if one.is_literal and not other.is_literal:
            one, other, operator = other, one, _FLIPPED[operator]
        return compare(operator, one, other)

    def _same(self, node: Any) -> Condition:
        """IS NOT DISTINCT FROM: nulls are equal, and nothing is unknown."""
        left, right = node.this, node.expression
        equal = self._comparison("EQ", left, right)
        return partial(_null_safe, equal, self._operand(left), self._operand(right))

    def _distinct(self, node: Any) -> Condition:
        return partial(_inverted, self._same(node))

    def _between(self, node: Any) -> Condition:
        low = self._comparison("GTE", node.this, node.args["low"])
        high = self._comparison("LTE", node.this, node.args["high"])
        return partial(_joined, "and_kleene", [low, high])

    def _is(self, node: Any) -> Condition:
        if type(node.expression).__name__ != "Null":
            raise BadFilter(f"{node.sql()}: IS is for NULL")
        return partial(_is_null, self._operand(node.this))

    def _in(self, node: Any) -> Condition:
        if not node.expressions:
            raise BadFilter(f"{node.sql()}: IN has a list of values")
        each = [self._comparison("EQ", node.this, value) for value in node.expressions]
        return partial(_joined, "or_kleene", each)

    def _like(self, node: Any) -> Condition:
        escape = None
        if type(node).__name__ == "Escape":
            node, escape = node.this, node.expression
        if type(node).__name__ != "Like":
            raise BadFilter(f"{node.sql()} is not in filters")
        arrow = import_arrow()
        operand, pattern = self._operand(node.this), literal(node.expression)
        if operand.type != arrow.string() or not isinstance(pattern, str):
            raise BadFilter(f"{node.sql()}: LIKE compares a column of texts with a text")
        sign = None if escape is None else literal(escape)
        matches = partial(_matches, operand, expression_of(pattern, sign))
        return partial(_inverted, matches) if node.args.get("negate") else matches

    # --- operands ------------------------------------------------------------------------------

    def _operand(self, node: Any) -> Operand:
        match type(node).__name__:
            case "Paren":
                return self._operand(node.this)
            case "Column" if not node.table:
                return self._column(node.name)
            case "Anonymous" if node.name == "_header" and len(node.expressions) == 1:
                return self._header(node)
        return Operand.of_literal(literal(node))

    def _column(self, name: str) -> Operand:
        schema, is_record = self._rows, name in RECORD
        if is_record:
            name, schema = RECORD[name], self._records
        if name not in schema.names:
            known = ", ".join([*self._rows.names, *RECORD])
            raise BadFilter(f"there is no column {name!r}; there are {known}")
        kind = schema.field(name).type
        return Operand(kind, partial(_take, name, is_record=is_record))

    def _header(self, node: Any) -> Operand:
        key = literal(node.expressions[0])
        if not isinstance(key, str):
            raise BadFilter(f"{node.sql()}: a header's name is a text")
        return Operand(import_arrow().binary(), partial(_header_values, key))


_PREDICATES: dict[str, Callable[[Filter, Any], Condition]] = {
    "Is": Filter._is,
    "In": Filter._in,
    "Between": Filter._between,
    "Like": Filter._like,
    "Escape": Filter._like,
    "NullSafeEQ": Filter._same,
    "NullSafeNEQ": Filter._distinct,
}


def parse_condition(text: str) -> Any:
    """The tree of a condition. Raises BadFilter, ArrowMissing."""
    try:
        from sqlglot import exp
        from sqlglot.dialects.dialect import Dialect
        from sqlglot.errors import SqlglotError
    except ImportError as error:
        raise ArrowMissing(
            "filters need sqlglot: install samelog with the extra 'typed'"
        ) from error
    if len(text.encode("utf-8", "replace")) > TEXT_BYTES:
        raise BadFilter(f"a filter has at most {TEXT_BYTES} bytes")
    if text.count("(") > NESTING_MOST or text.upper().count("NOT") > NESTING_MOST:
        raise BadFilter(f"a filter has at most {NESTING_MOST} parentheses, and as many NOTs")
    try:
        found = Dialect.get_or_raise("duckdb").parse_into(exp.Condition, text)
    except (SqlglotError, RecursionError, ValueError) as error:
        raise BadFilter(f"no condition of SQL{_place(error)}") from error
    if len(found) != 1 or found[0] is None:
        raise BadFilter("a filter is one condition")
    _check_tree(found[0])
    return found[0]


def _place(error: Exception) -> str:
    """Where the parser stumbled, if it says so."""
    near = [found["highlight"] for found in getattr(error, "errors", ()) if found.get("highlight")]
    return f", near {near[0]!r}" if near else ""


def _check_tree(root: Any) -> None:
    """Without recursion: a chain of ANDs is deep, and no harm; it is evaluated flat."""
    waiting, count = [(root, 0)], 0
    while waiting:
        node, depth = waiting.pop()
        count += 1
        if depth > DEPTH_MOST or count > NODES_MOST:
            raise BadFilter(f"a filter has at most {NODES_MOST} parts, {DEPTH_MOST} deep")
        name = type(node).__name__
        if any(node.args[part] for part in node.args.keys() - _PARTS.get(name, _PLAIN)):
            raise BadFilter(f"{node.sql()} is not in filters")
        for child in node.iter_expressions():
            is_chain = type(child) is type(node) and name in ("And", "Or")
            waiting.append((child, depth + (not is_chain)))


# --- evaluation --------------------------------------------------------------------------------


def _take(name: str, rows: pa.Table, records: pa.Table, *, is_record: bool) -> Any:
    return (records if is_record else rows).column(name)


def _header_values(key: str, rows: pa.Table, records: pa.Table) -> Any:
    """The last header of that name, as Kafka's clients have it; null if there is none."""
    arrow = import_arrow()
    found = [
        next((h["value"] for h in reversed(each or ()) if h["key"] == key), None)
        for each in records.column("headers").to_pylist()
    ]
    return arrow.chunked_array([arrow.array(found, arrow.binary())])


def _joined(function: str, parts: list[Condition], rows: pa.Table, records: pa.Table) -> Any:
    from pyarrow import compute

    return reduce(getattr(compute, function), (part(rows, records) for part in parts))


def _inverted(part: Condition, rows: pa.Table, records: pa.Table) -> Any:
    from pyarrow import compute

    return compute.invert(part(rows, records))


def _values(operand: Operand, rows: pa.Table, records: pa.Table) -> Any:
    arrow = import_arrow()
    if not operand.is_literal:
        return operand.take(rows, records)
    return arrow.repeat(arrow.scalar(operand.value, arrow.bool_()), records.num_rows)


def _is_null(operand: Operand, rows: pa.Table, records: pa.Table) -> Any:
    arrow = import_arrow()
    if operand.is_literal:
        return arrow.repeat(arrow.scalar(operand.is_null), records.num_rows)
    return operand.take(rows, records).is_null()


def _null_safe(
    equal: Condition, one: Operand, other: Operand, rows: pa.Table, records: pa.Table
) -> Any:
    from pyarrow import compute

    left, right = _is_null(one, rows, records), _is_null(other, rows, records)
    both = compute.and_(left, right)
    return compute.or_(both, compute.fill_null(equal(rows, records), fill_value=False))


def _matches(operand: Operand, expression: str, rows: pa.Table, records: pa.Table) -> Any:
    from pyarrow import compute

    return compute.match_substring_regex(operand.take(rows, records), expression)
