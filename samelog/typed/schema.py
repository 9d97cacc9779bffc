"""A topic's schema: named, typed columns, and how rows of them become values. Pure.

The text of a schema is a JSON object (docs/typed.md, "Schemas"). The replicated state machine
parses it, so what is taken may only change with a feature level. Invariant: equal schemas have
equal canonical texts and fingerprints; a schema that was parsed can be held by its format.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from samelog.typed.types import ColumnType, TypeKind, parse_type

TEXT_BYTES = 64 << 10
COLUMNS_MOST = 1000
NAME_CHARACTERS = 255
_KEYS = {"format", "columns"}
_COLUMN_KEYS = {"name", "type", "nullable", "default"}
Default = str | int | float | bool | None


class BadSchema(ValueError):
    """A text is no schema."""


class NoSchema(Exception):
    """The topic has no schema, or none that is known here; the message says what to do."""


class NobodyAnswers(NoSchema):
    """The cluster cannot be asked, or nobody answers now."""


class SchemaFormat(Enum):
    """How a row becomes a value."""

    ARROW = "arrow"
    JSON = "json"
    AVRO = "avro"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `default` is for rows that lack it, and is null for nullable ones."""

    name: str
    type: ColumnType
    is_nullable: bool = True
    default: Default = None

    @property
    def may_lack(self) -> bool:
        """Whether a row may do without it."""
        return self.is_nullable or self.default is not None


@dataclass(frozen=True)
class Schema:
    """Columns in order, and the format of values."""

    format: SchemaFormat
    columns: tuple[Column, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """The columns by their names."""
        return {column.name: column for column in self.columns}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self.by_name)

    @cached_property
    def text(self) -> str:
        """The canonical text."""
        columns = [_column_object(column) for column in self.columns]
        whole = {"format": self.format.value, "columns": columns}
        return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical text: who has the same one has the same schema."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def _column_object(column: Column) -> dict[str, Any]:
    found: dict[str, Any] = {"name": column.name, "type": column.type.text}
    if not column.is_nullable:
        found["nullable"] = False
    if column.default is not None:
        found["default"] = column.default
    return found


def parse_schema(text: str) -> Schema:
    """The schema of a text. Raises BadSchema."""
    try:
        if len(text.encode()) > TEXT_BYTES:
            raise BadSchema(f"a schema is longer than {TEXT_BYTES} bytes")
        found = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)
    except BadSchema:
        raise
    except (ValueError, RecursionError) as error:
        raise BadSchema(f"a schema is a JSON object: {error}") from error
    if not isinstance(found, dict) or found.keys() != _KEYS:
        raise BadSchema('a schema is {"format": …, "columns": [{"name": …, "type": …}, …]}')
    columns = found["columns"]
    if not isinstance(columns, list) or not 0 < len(columns) <= COLUMNS_MOST:
        raise BadSchema(f"a schema has 1 to {COLUMNS_MOST} columns")
    return make_schema(_format(found["format"]), tuple(map(_column, columns)))


def make_schema(value_format: SchemaFormat, columns: tuple[Column, ...]) -> Schema:
    """A schema whose columns go together, and into the format. Raises BadSchema."""
    schema = Schema(value_format, columns)
    names = [column.name for column in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadSchema(f"there is more than one column {', '.join(twice)}")
    for column in columns:
        problem = _problem_in_format(value_format, column.type)
        if problem is not None:
            raise BadSchema(f"column {column.name!r}: {value_format.value} {problem}")
    try:
        schema.text.encode()
    except UnicodeEncodeError as error:
        raise BadSchema(f"a name or a default is no text: {error}") from error
    return schema


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadSchema("a member of a schema is there twice")
    return found


def _no_constant(name: str) -> None:
    raise BadSchema(f"{name} is no JSON")


def _format(value: object) -> SchemaFormat:
    try:
        return SchemaFormat(value)
    except ValueError as error:
        known = ", ".join(each.value for each in SchemaFormat)
        raise BadSchema(f"format {value!r} is none of {known}") from error


def _column(found: object) -> Column:
    if not isinstance(found, dict) or not {"name", "type"} <= found.keys() <= _COLUMN_KEYS:
        raise BadSchema(f"a column has name, type, nullable and default, and no more: {found!r}")
    name, kind, nullable = found["name"], found["type"], found.get("nullable", True)
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARACTERS or name.startswith("_"):
        raise BadSchema(
            f"column {name!r}: a name has 1 to {NAME_CHARACTERS} characters, and no _ in front"
        )
    if not isinstance(nullable, bool) or not isinstance(kind, str):
        raise BadSchema(f"column {name!r}: type is a text, nullable true or false")
    try:
        parsed = parse_type(kind)
    except (ValueError, RecursionError) as error:
        raise BadSchema(f"column {name!r}: {error}") from error
    return Column(name, parsed, nullable, _default(name, parsed, found.get("default")))


_DEFAULTS: Mapping[TypeKind, type | tuple[type, ...]] = {
    TypeKind.BOOL: bool,
    TypeKind.INTEGER: int,
    TypeKind.FLOAT: (int, float),
    TypeKind.STRING: str,
}


def _default(name: str, kind: ColumnType, value: object) -> Default:
    """Columns of other types have no default but null."""
    if value is None:
        return None
    fits = isinstance(value, _DEFAULTS.get(kind.kind, ())) and (
        isinstance(value, bool) is (kind.kind is TypeKind.BOOL)
    )
    if fits and isinstance(value, int) and kind.kind is TypeKind.INTEGER:
        least, most = kind.limits
        fits = least <= value <= most
    if not fits:
        raise BadSchema(f"column {name!r}: {value!r} is no default of {kind.text}")
    return _number(name, value) if kind.kind is TypeKind.FLOAT else value  # type: ignore[return-value]


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadSchema(f"column {name!r}: the default is no finite number")
    return number


def _problem_in_format(value_format: SchemaFormat, kind: ColumnType) -> str | None:
    if kind.item is not None:
        if value_format is SchemaFormat.CSV:
            return "has no lists"
        return _problem_in_format(value_format, kind.item)
    if value_format is SchemaFormat.AVRO:
        if kind.text == "uint64":
            return "has no uint64"
        if kind.kind is TypeKind.TIMESTAMP and kind.unit == "s":
            return "has no timestamps of seconds; take timestamp[ms]"
    return None
