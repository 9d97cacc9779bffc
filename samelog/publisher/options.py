"""What a publisher was given, completed from its configuration and checked once.

What applications may pass for timestamps, headers and columns, as the kernels want it.

Invariant: options that exist are usable together; what is wrong raises ValueError naming the
option.
Also: what cannot be encoded is refused before anything is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import TYPE_CHECKING, TypeAlias, TypedDict, cast

from samelog.config.load import load_client
from samelog.config.tables.client import (
    ClientConfig,
    Compression,
    OnFull,
    OnRecreate,
    PublisherConfig,
)
from samelog.format.arguments import check_choice, check_integer, check_number, shown
from samelog.format.compression import Codec
from samelog.format.dedup import dedup_producer_id
from samelog.format.names import check_session_name, check_topic_name
from samelog.format.numbers import TIMESTAMPS
from samelog.publisher.records import NO_PRODUCER, BatchLimits, RecordColumns

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from samelog.format.directory_files import RefusedRecord

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


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def as_milliseconds(timestamp: Timestamp) -> int:
    """Milliseconds since the epoch. Raises TypeError; ValueError for a datetime without zone, and
    for a number that no record can hold.
    """
    if isinstance(timestamp, int):
        if timestamp not in TIMESTAMPS:
            raise ValueError(f"the timestamp {shown(timestamp)} ms does not fit into 64 bits")
        return timestamp
    if not isinstance(timestamp, datetime):
        raise TypeError(
            f"a timestamp is an int (ms since the epoch) or a datetime, not {_kind(timestamp)}"
        )
    if timestamp.tzinfo is None:
        raise ValueError(f"the timestamp {timestamp} has no time zone: add tzinfo=timezone.utc")
    return (timestamp - EPOCH) // MILLISECOND


def as_pairs(headers: Headers) -> Sequence[tuple[str, Buffer | None]]:
    """Headers as pairs. Raises TypeError."""
    if isinstance(headers, Mapping):
        return tuple(headers.items())
    if not isinstance(headers, Sequence):
        raise TypeError(f"headers are pairs of a name and bytes, not {_kind(headers)}")
    return headers


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
        numbers = cast("list[int]", given)
        for furthest in (min(numbers, default=0), max(numbers, default=0)):
            as_milliseconds(furthest)
        return numbers
    return [as_milliseconds(timestamp) for timestamp in given]


def misfit_of(value: object, key: object, headers: object, error: Exception) -> Exception:
    """A clearer error for a part of a record that cannot be encoded; `error` itself if all can."""
    return _misfit(value, key, headers) or error


def misfit_among(columns: RecordColumns, error: Exception) -> Exception:
    """The same for the first of many records that cannot be encoded, with its place."""
    keys, headers = columns.keys or repeat(None), columns.headers or repeat(None)
    # the lengths are equal: only an absent column repeats
    for place, record in enumerate(zip(columns.values, keys, headers, strict=False)):
        found = _misfit(*record)
        if found is not None:
            return TypeError(f"record {place}: {found}")
    return error


def _misfit(value: object, key: object, headers: object) -> TypeError | None:
    for name, given in (("value", value), ("key", key)):
        found = _not_bytes(name, given, f"{name}.encode()")
        if found is not None:
            return found
    return None if headers is None else _header_misfit(headers)


def _header_misfit(headers: object) -> TypeError | None:
    if not isinstance(headers, Sequence) or isinstance(headers, str | bytes):
        return TypeError(f"headers are pairs of a name and bytes, not {_kind(headers)}")
    for each in headers:
        if not isinstance(each, Sequence) or isinstance(each, str | bytes) or len(each) != 2:
            return TypeError(f"a header is a pair of a name and bytes, not {shown(each)}")
        if not isinstance(each[0], str):
            return TypeError(f"the name of a header is a str, not {_kind(each[0])}")
        found = _not_bytes(f"header {shown(each[0])}", each[1], "value.encode()")
        if found is not None:
            return found
    return None


def _not_bytes(what: str, given: object, remedy: str) -> TypeError | None:
    if isinstance(given, str):
        return TypeError(f"the {what} is a str; encode it: {remedy}")
    if given is not None and not _is_buffer(given):
        return TypeError(f"the {what} must be bytes or None, not {_kind(given)}")
    return None


def _is_buffer(value: object) -> bool:
    try:
        memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _kind(value: object) -> str:
    return type(value).__name__


BATCH_BYTES_MAX = 1 << 20
RECORD_BYTES_MAX = 64 << 20
ROLL_BYTES_MIN = 4 << 10
ROLLS_PER_BUDGET = 8
"""Only whole files are released, so a budget that few files fill would stop and go."""


class PublisherKeywords(TypedDict, total=False):
    """The options of `Publisher`, which documents them, and of `AsyncPublisher`."""

    directory: str | os.PathLike[str] | None
    config: str | os.PathLike[str] | ClientConfig | None
    ship: bool
    partitions: int | None
    dedup_id: str | None
    linger_ms: float
    batch_bytes: int
    max_record_bytes: int
    budget_bytes: int | None
    on_full: str | OnFull | None
    roll_bytes: int | None
    stage: str | None
    session_header: bool
    compression: str | Compression | None
    on_refused: Callable[[RefusedRecord], None] | None
    registry: str | None
    on_recreate: str | OnRecreate


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherOptions:
    """The options of a `Publisher`, each with its value."""

    topic: str
    session: str
    directory: str
    """Of the session itself."""
    config: ClientConfig | None
    ship: bool
    partitions: int | None
    dedup_id: str | None
    linger_s: float
    limits: BatchLimits
    budget_bytes: int
    on_full: OnFull
    roll_bytes: int
    stage: str | None
    has_session_header: bool
    codec: Codec


def resolve(topic: str, session: str, given: PublisherKeywords) -> PublisherOptions:
    """Complete and check the options. Raises ValueError, TypeError, InvalidName, ConfigError."""
    unknown = sorted(given.keys() - PublisherKeywords.__optional_keys__)
    if unknown:
        raise TypeError(f"a publisher has no option {', '.join(unknown)}")
    client = _load(given.get("config"))
    disk = PublisherConfig() if client is None else client.publisher
    dedup_id, stage = given.get("dedup_id"), given.get("stage")
    on_full, budget_bytes = given.get("on_full"), given.get("budget_bytes")
    count = given.get("partitions")
    budget = disk.budget_bytes if budget_bytes is None else budget_bytes
    return PublisherOptions(
        topic=check_topic_name(topic),
        session=check_session_name(session),
        directory=os.path.join(_root(given.get("directory"), disk), session),
        config=client,
        ship=given.get("ship", True) and client is not None,
        partitions=None if count is None else _whole("partitions", count, 1, 1 << 20),
        dedup_id=dedup_id,
        linger_s=check_number("linger_ms", given.get("linger_ms", 0), 0, 60_000) / 1000,
        limits=_batch_limits(given, dedup_id),
        budget_bytes=_whole("budget_bytes", budget, 1, 1 << 62),
        on_full=disk.on_full if on_full is None else check_choice("on_full", on_full, OnFull),
        roll_bytes=_roll_bytes(given.get("roll_bytes"), disk.roll_bytes, budget),
        stage=None if stage is None else check_session_name(stage),
        has_session_header=given.get("session_header", False),
        codec=_codec(given.get("compression"), disk.compression),
    )


def _codec(wanted: str | Compression | None, default: Compression) -> Codec:
    chosen = default if wanted is None else check_choice("compression", wanted, Compression)
    return Codec[chosen.name]


def _batch_limits(given: PublisherKeywords, dedup_id: str | None) -> BatchLimits:
    batch, record = given.get("batch_bytes", 1 << 16), given.get("max_record_bytes", 1 << 20)
    return BatchLimits(
        _whole("batch_bytes", batch, 1, BATCH_BYTES_MAX),
        _whole("max_record_bytes", record, 1, RECORD_BYTES_MAX),
        NO_PRODUCER if dedup_id is None else dedup_producer_id(_checked_dedup(dedup_id)),
    )


def _load(config: str | os.PathLike[str] | ClientConfig | None) -> ClientConfig | None:
    if config is None or isinstance(config, ClientConfig):
        return config
    return load_client(os.fspath(config))


def _root(directory: str | os.PathLike[str] | None, disk: PublisherConfig) -> str:
    if directory is not None:
        return os.path.abspath(os.fspath(directory))
    if disk.directory is None:
        raise ValueError("directory is missing: pass it, or set dir in [publisher] of the config")
    return disk.directory


def _roll_bytes(wanted: int | None, default: int, budget: int) -> int:
    if wanted is None:
        return min(default, max(ROLL_BYTES_MIN, budget // ROLLS_PER_BUDGET))
    if _whole("roll_bytes", wanted, ROLL_BYTES_MIN, 1 << 40) > budget:
        raise ValueError(
            f"roll_bytes is {wanted}, more than budget_bytes, {budget}: files are released whole"
        )
    return wanted


def _checked_dedup(dedup_id: str) -> str:
    if not 1 <= len(dedup_id) <= 128 or not dedup_id.isprintable():
        raise ValueError(f"dedup_id {dedup_id[:80]!r} is not 1 to 128 printable characters")
    return dedup_id


def _whole(name: str, value: int, low: int, high: int) -> int:
    return check_integer(name, value, range(low, high + 1))
