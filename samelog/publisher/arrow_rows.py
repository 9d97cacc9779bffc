"""Arrow tables as columns of records.

Invariant: a record per row, in order; a column of a type that has no exact meaning here is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from samelog.format import _kernels as kernels

if TYPE_CHECKING:
    import pyarrow as pa

    from samelog.publisher.options import Headers

KEY, TIMESTAMP, HEADERS = "key", "timestamp", "headers"
"""The columns' names in the tables that a subscriber gives."""


@dataclass(frozen=True, slots=True)
class ArrowColumns:
    """The columns of `append_many`."""

    values: Sequence[bytes | None]
    keys: list[bytes | None] | None
    headers: list[Headers | None] | None
    timestamps: list[int] | None


def columns_of(
    table: pa.Table | pa.RecordBatch,
    value: str | None,
    key: str | None,
    timestamp: str | None,
    headers: str | None,
) -> ArrowColumns:
    """The named columns of a table; see `Publisher.append_arrow`. Raises ValueError."""
    names = set(table.schema.names)
    if value is not None:
        key = _default(key, KEY, names)
        timestamp = _default(timestamp, TIMESTAMP, names)
        headers = _default(headers, HEADERS, names)
    return ArrowColumns(
        _as_json(table) if value is None else _lent_column(table, value),
        None if key is None else binary_column(table, key),
        None if headers is None else _pairs(table, headers),
        None if timestamp is None else milliseconds_column(table, timestamp),
    )


def _default(name: str | None, default: str, names: set[str]) -> str | None:
    return default if name is None and default in names else name


def _column(table: Any, name: str) -> Any:
    if name not in table.schema.names:
        known = ", ".join(table.schema.names) or "none"
        raise ValueError(f"the table has no column {name!r}; it has: {known}")
    return table.column(name)


def binary_column(table: Any, name: str) -> list[bytes | None]:
    """The bytes of a binary or string column. Raises ValueError."""
    result: list[bytes | None] = _large_binary(table, name).to_pylist()
    return result


def _lent_column(table: Any, name: str) -> kernels.BytesColumn:
    """The same, where they lie. Raises ValueError."""
    column = _large_binary(table, name)
    if hasattr(column, "chunks"):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    validity, offsets, data = column.buffers()
    return kernels.BytesColumn(validity, offsets or b"", data or b"", column.offset, len(column))


def _large_binary(table: Any, name: str) -> Any:
    import pyarrow as arrow

    column = _column(table, name)
    kind = column.type
    if not _is_binary(arrow.types, kind):
        raise ValueError(f"column {name!r} is {kind}; it must be binary or string")
    return column.cast(arrow.large_binary())


def _is_binary(types: Any, kind: Any) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
    )


def milliseconds_column(table: Any, name: str) -> list[int]:
    """The times of a column, in ms. Raises ValueError."""
    import pyarrow as arrow

    column = _column(table, name)
    if arrow.types.is_timestamp(column.type):
        column = column.cast(arrow.timestamp("ms", tz=column.type.tz), safe=False)
    elif not arrow.types.is_integer(column.type):
        raise ValueError(f"column {name!r} is {column.type}; it must be a timestamp, or int (ms)")
    if column.null_count:
        raise ValueError(f"column {name!r} has {column.null_count} rows without a timestamp")
    result: list[int] = column.cast(arrow.int64()).to_pylist()
    return result


def _pairs(table: Any, name: str) -> list[Headers | None]:
    rows: list[Any] = _column(table, name).to_pylist()
    return [None if not row else [_pair(name, entry) for entry in row] for row in rows]


def _pair(name: str, entry: Any) -> tuple[str, bytes | None]:
    if isinstance(entry, dict) and entry.keys() == {"key", "value"}:
        return entry["key"], entry["value"]
    if isinstance(entry, tuple) and len(entry) == 2:
        return entry[0], entry[1]
    raise ValueError(f"column {name!r} must be a list of struct<key, value>, or a map")


def _as_json(table: Any) -> list[bytes | None]:
    encode = msgspec.json.Encoder().encode
    return [encode(row) for row in table.to_pylist()]
