"""What a query's filters leave to be read: fewer partitions, and shorter ranges.

Spark still applies every filter to what is read; so this need not leave out all that it could.
Invariant: no record that passes the filters is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from math import floor
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from samelog.spark.plan.offsets import OffsetRange
from samelog.spark.plan.range_limits import FindTime


class Narrowing:
    """The filters that say something of a record's place; `prefix` is before its columns' names."""

    def __init__(self, filters: Iterable[Filter], *, prefix: str = "") -> None:
        self._filters: list[tuple[str, Any]] = []
        for each in filters:
            path: Any = getattr(each, "attribute", ())
            if len(path) == 1 and path[0].startswith(prefix):
                self._filters.append((path[0].removeprefix(prefix), each))

    def apply(self, ranges: Sequence[OffsetRange], find_time: FindTime) -> list[OffsetRange]:
        """What is left. `find_time`: the first offset at or behind a time, None if there is none.
        (Times need not rise along a log; but before that offset all are earlier.)
        """
        for column, each in self._filters:
            match column:
                case "topic" | "partition":
                    ranges = [r for r in ranges if _holds(each, getattr(r.name, column))]
                case "offset":
                    ranges = [_within(each, r) for r in ranges]
                case "timestamp":
                    ranges = [_since(each, r, find_time) for r in ranges]
        return [each for each in ranges if each.start < each.end]


def _holds(condition: Filter, value: str | int) -> bool:
    """Whether a partition can match a condition; unknown conditions always can."""
    match condition:
        case EqualTo():
            return bool(value == condition.value)
        case In():
            return value in condition.value
        case _:
            return True


def _within(condition: Filter, each: OffsetRange) -> OffsetRange:
    """The offsets between those that pass, and they themselves."""
    start, end = each.start, each.end
    match condition:
        case EqualTo(value=value):
            start, end = value, value + 1
        case In(value=values):
            start, end = min(values), max(values) + 1
        case GreaterThan(value=value):
            start = value + 1
        case GreaterThanOrEqual(value=value):
            start = value
        case LessThan(value=value):
            end = value
        case LessThanOrEqual(value=value):
            end = value + 1
    return each._replace(start=max(start, each.start), end=min(end, each.end))


def _since(condition: Filter, each: OffsetRange, find_time: FindTime) -> OffsetRange:
    match condition:
        case EqualTo(value=value) | GreaterThan(value=value) | GreaterThanOrEqual(value=value):
            return _from_time(each, value, find_time)
        case _:
            return each


def _from_time(each: OffsetRange, value: datetime, find_time: FindTime) -> OffsetRange:
    found = find_time(each.name, max(0, floor(value.timestamp() * 1000)))
    return each._replace(start=each.end if found is None else max(found, each.start))
