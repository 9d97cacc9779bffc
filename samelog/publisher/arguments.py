"""What applications may pass for timestamps, headers and columns, as the kernels want it.

Invariant: what cannot be encoded is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias, TypedDict, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

Timestamp: TypeAlias = int | datetime
"""Milliseconds since the epoch, or a datetime with a time zone."""

Headers: TypeAlias = "Sequence[tuple[str, Buffer | None]] | Mapping[str, Buffer | None]"
"""Pairs of a name and a value; a mapping where no name comes twice."""


class PlacingKeywords(TypedDict, total=False):
    """Where many records go, and their dedup ids; see `Publisher.append_many`."""

    partition: int | None
    topic: str | None
    ids: Iterable[int] | None
    first_id: int | None


def as_milliseconds(timestamp: Timestamp) -> int:
    """Milliseconds since the epoch. Raises TypeError; ValueError for a datetime without zone."""
    if isinstance(timestamp, int):
        return timestamp
    if not isinstance(timestamp, datetime):
        raise TypeError(
            f"a timestamp is an int (ms since the epoch) or a datetime, not {_kind(timestamp)}"
        )
    if timestamp.tzinfo is None:
        raise ValueError(f"the timestamp {timestamp} has no time zone: add tzinfo=timezone.utc")
    return int(timestamp.timestamp() * 1000)


def as_pairs(headers: Headers) -> Sequence[tuple[str, Buffer | None]]:
    """Headers as pairs."""
    return tuple(headers.items()) if isinstance(headers, Mapping) else headers


def as_column_of_pairs(
    headers: Iterable[Headers | None] | None,
) -> list[Sequence[tuple[str, Buffer | None]] | None] | None:
    """A column of headers; None and empty ones alike are none."""
    if headers is None:
        return None
    return [as_pairs(entry) if entry else None for entry in headers]


def as_timestamps(timestamps: Timestamp | Iterable[Timestamp]) -> int | list[int]:
    """One timestamp for all records, or one for each."""
    if isinstance(timestamps, int | datetime):
        return as_milliseconds(timestamps)
    given = list(timestamps)
    if {*map(type, given)} <= {int}:
        return cast("list[int]", given)
    return [as_milliseconds(timestamp) for timestamp in given]


def not_bytes(value: object, key: object, error: TypeError) -> TypeError:
    """A clearer error for a value or key that is not bytes; `error` itself if both are."""
    for name, given in (("value", value), ("key", key)):
        if isinstance(given, str):
            return TypeError(f"the {name} is a str; encode it: {name}.encode()")
        if given is not None and not _is_buffer(given):
            return TypeError(f"the {name} must be bytes or None, not {_kind(given)}")
    return error


def _is_buffer(value: object) -> bool:
    try:
        memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _kind(value: object) -> str:
    return type(value).__name__
