"""Values that are JSON objects, as an Arrow column of the types that a topic's schema names.

Invariant: there is a row for every value; one that does not fit the schema is null, never an error
and never cut to fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

FIELDS = "fields"
"""The name of the column: a struct, so that no field meets another column's name."""

MILLISECOND = timedelta(milliseconds=1)


def _integer(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]


_KINDS: Mapping[str, tuple[str, Any]] = {
    "bool": ("bool_", bool),
    **{f"int{bits}": (f"int{bits}", _integer(bits)) for bits in (8, 16, 32, 64)},
    "float32": ("float32", float),
    "float64": ("float64", float),
    "string": ("string", str),
    "date32": ("date32", date),
    "timestamp[ms]": ("timestamp", _integer(53) | datetime),
}
"""Arrow's type, and what JSON may hold for it: a moment is RFC 3339 text, or ms since 1970."""


class TypedValues:
    """Makes the column for one schema."""

    def __init__(self, schema: Mapping[str, str]) -> None:
        """`schema`: field -> type, as `parse_schema` gives it."""
        self._names = list(schema)
        attributes = [f"f{number}" for number in range(len(schema))]
        members = [
            (attribute, _KINDS[kind][1] | None, None)
            for attribute, kind in zip(attributes, schema.values(), strict=True)
        ]
        renamed = dict(zip(attributes, self._names, strict=True))
        self._decoder = msgspec.json.Decoder(
            msgspec.defstruct("Value", members, array_like=False, rename=renamed)
        )
        self._types = [_arrow_type(kind) for kind in schema.values()]

    @property
    def type(self) -> pa.DataType:
        """Of the column."""
        import pyarrow as arrow

        return arrow.struct(list(zip(self._names, self._types, strict=True)))

    def column(self, values: Sequence[bytes | None]) -> pa.Array:
        """The column for these values."""
        import pyarrow as arrow

        rows = [self._row(value) for value in values]
        children = [
            arrow.array([None if row is None else _plain(row[field]) for row in rows], kind)
            for field, kind in enumerate(self._types)
        ]
        nulls = arrow.array([row is None for row in rows], arrow.bool_())
        return arrow.StructArray.from_arrays(children, fields=list(self.type), mask=nulls)

    def _row(self, value: bytes | None) -> tuple[Any, ...] | None:
        try:
            return msgspec.structs.astuple(self._decoder.decode(value or b""))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None


def _arrow_type(kind: str) -> pa.DataType:
    import pyarrow as arrow

    name = _KINDS[kind][0]
    return arrow.timestamp("ms", tz="UTC") if name == "timestamp" else getattr(arrow, name)()


def _plain(cell: Any) -> Any:
    """As Arrow takes it: a moment as a number, whatever its zone; one without a zone is in UTC."""
    if not isinstance(cell, datetime):
        return cell
    moment = cell if cell.tzinfo is not None else cell.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // MILLISECOND
