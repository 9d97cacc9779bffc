"""Where a query starts and ends: earliest, latest, offsets or times, for all partitions or each.

The texts are those of Spark's Kafka source, so that a query moves over as it is. Invariant: what is
settled lies within the bounds of each partition, and every partition of the query has a place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from samelog.format.arguments import parse_digits, shown
from samelog.format.numbers import OFFSETS
from samelog.spark.errors import BadOption, SourceError
from samelog.spark.plan.catalogue import OffsetBounds
from samelog.spark.plan.offsets import Offsets, PartitionName, flat

EARLIEST, LATEST = -2, -1
SINCE_1970 = range(1 << 63)
"""In ms."""
_NAMES = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class OffsetRangeLimit:
    """A place for every partition (`everywhere`), or for `each`; offsets, or times in ms. `option`:
    where they come from, for messages.
    """

    option: str
    everywhere: int | None = None
    each: Mapping[PartitionName, int] = field(default_factory=dict)
    is_time: bool = False

    def of(self, name: PartitionName) -> int:
        """One partition's place."""
        return self.each[name] if self.everywhere is None else self.everywhere


def parse_offsets(option: str, text: str) -> OffsetRangeLimit:
    """earliest, latest, or JSON: {"topic": {"0": 23, "1": -2}}; -2 is earliest, -1 latest."""
    everywhere = _NAMES.get(text.strip().lower())
    if everywhere is not None:
        return OffsetRangeLimit(option, everywhere)
    each = _parse_each(option, text, 'earliest, latest or {"topic": {"0": 23, "1": -2}}')
    for name, offset in each.items():
        if offset not in OFFSETS and offset not in (EARLIEST, LATEST):
            raise BadOption(
                f"{option}: {name} has offset {shown(offset)}; -2 is earliest, -1 is latest, and "
                f"offsets are 0 to {OFFSETS[-1]}"
            )
    return OffsetRangeLimit(option, None, each)


def parse_timestamp(option: str, text: str) -> OffsetRangeLimit:
    """One time for all partitions, in ms since 1970."""
    time_ms = parse_digits(text.strip(), SINCE_1970)
    if time_ms is None:
        raise BadOption(f"{option}: {shown(text)} is no time in ms since 1970")
    return OffsetRangeLimit(option, time_ms, is_time=True)


def parse_timestamps(option: str, text: str) -> OffsetRangeLimit:
    """A time for each partition, as JSON: {"topic": {"0": 1700000000000}}."""
    each = _parse_each(option, text, '{"topic": {"0": 1700000000000}}')
    for name, time_ms in each.items():
        if time_ms not in SINCE_1970:
            raise BadOption(f"{option}: {name} has {shown(time_ms)}: no time in ms since 1970")
    return OffsetRangeLimit(option, None, each, is_time=True)


def _parse_each(option: str, text: str, allowed: str) -> Mapping[PartitionName, int]:
    try:
        nested: Any = json.loads(text)
        found = flat(nested)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise BadOption(f"{option}: {text!r} is not understood; allowed is {allowed}") from error
    if not found:
        raise BadOption(f"{option}: {text!r} names no partition; allowed is {allowed}")
    return found


def check_complete(places: OffsetRangeLimit, partitions: Iterable[PartitionName]) -> None:
    """Offsets for each partition must be for exactly those of the query. Raises BadOption."""
    if places.everywhere is not None:
        return
    wanted = set(partitions)
    missing = sorted(wanted - set(places.each))
    unknown = sorted(set(places.each) - wanted)
    said = []
    if missing:
        said.append(f"says nothing of {', '.join(map(str, missing))}")
    if unknown:
        said.append(f"names {', '.join(map(str, unknown))}, which the query does not read")
    if said:
        raise BadOption(f"{places.option} {' and '.join(said)}: name every partition once")


FindTime = Callable[[PartitionName, int], int | None]


def settle(
    places: OffsetRangeLimit,
    bounds: Mapping[PartitionName, OffsetBounds],
    find_time: FindTime,
    *,
    must_find: bool = False,
) -> Offsets:
    """Offsets for the places. `find_time`: the first offset at or behind a time, None if there is
    none; then the end counts, unless one `must_find` it.

    Raises:
        BadOption: a place is outside the bounds, or partitions are missing or too many.
    """
    check_complete(places, bounds)
    return {
        name: _settle_time(places, name, found, find_time, must_find)
        if places.is_time
        else _settle_offset(places, name, found)
        for name, found in bounds.items()
    }


def _settle_offset(places: OffsetRangeLimit, name: PartitionName, bounds: OffsetBounds) -> int:
    offset = places.of(name)
    if offset == EARLIEST:
        return bounds.start
    if offset == LATEST:
        return bounds.end
    if not bounds.start <= offset <= bounds.end:
        raise BadOption(
            f"{places.option}: {name} has offset {offset}, but holds [{bounds.start}, "
            f"{bounds.end}): choose one of those, the end, earliest (-2) or latest (-1)"
        )
    return offset


def _settle_time(
    places: OffsetRangeLimit,
    name: PartitionName,
    bounds: OffsetBounds,
    find_time: FindTime,
    must_find: bool,
) -> int:
    time_ms = places.of(name)
    found = find_time(name, time_ms)
    if found is None and must_find:
        raise SourceError(
            f"{places.option}: {name} has no record at {time_ms} ms or later, its end is "
            f"{bounds.end}: choose an earlier time, or set startingOffsetsByTimestampStrategy to "
            "latest"
        )
    return bounds.end if found is None else min(max(found, bounds.start), bounds.end)


def check_order(
    begins: Offsets, starting: OffsetRangeLimit, ends: Offsets, ending: OffsetRangeLimit
) -> None:
    """Raise BadOption if a partition would end before it starts."""
    names = [name for name in sorted(begins) if begins[name] > ends.get(name, begins[name])]
    if names:
        told = ", ".join(f"{name}: {begins[name]} to {ends[name]}" for name in names)
        raise BadOption(f"{starting.option} lies behind {ending.option}: {told}")
