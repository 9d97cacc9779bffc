"""Filters that narrow what is read, and never the result."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from samelog.spark.plan.offsets import OffsetRange, PartitionName
from samelog.spark.plan.pushdown import Narrowing

NUMBERS = st.integers(-3, 25)
TESTS: dict[Any, Callable[[Any, Any], bool]] = {
    EqualTo: lambda found, value: found == value,
    GreaterThan: lambda found, value: found > value,
    GreaterThanOrEqual: lambda found, value: found >= value,
    LessThan: lambda found, value: found < value,
    LessThanOrEqual: lambda found, value: found <= value,
    In: lambda found, value: found in value,
    IsNotNull: lambda found, value: True,
}


def moment(ms: int) -> datetime:
    """A time as Spark hands it over."""
    return datetime.fromtimestamp(ms / 1000, UTC)


@st.composite
def filters(draw: st.DrawFn) -> tuple[Filter, str, object]:
    """A filter of Spark, its column, and its value."""
    column = draw(st.sampled_from(["topic", "partition", "offset", "timestamp", "value"]))
    kind = draw(st.sampled_from(list(TESTS)))
    one: st.SearchStrategy[object] = NUMBERS
    if column == "topic":
        one = st.sampled_from(["a", "b"])
    elif column == "timestamp":
        one = NUMBERS.map(moment)
    value = draw(st.lists(one, min_size=1).map(tuple) if kind is In else one)
    made = IsNotNull((column,)) if kind is IsNotNull else kind((column,), value)
    return made, column, value


TIMES = st.lists(NUMBERS, min_size=20, max_size=20)


@given(st.lists(filters(), max_size=4), TIMES)
def test_no_record_that_passes_is_left_out(
    chosen: list[tuple[Filter, str, object]], times: list[int]
) -> None:
    names = [PartitionName(topic, partition) for topic in "ab" for partition in range(2)]
    ranges = [OffsetRange(name, "id", 2, 20) for name in names]

    def find_time(name: PartitionName, time_ms: int) -> int | None:
        return next((offset for offset in range(20) if times[offset] >= time_ms), None)

    narrowed = Narrowing(each for each, _, _ in chosen).apply(ranges, find_time)
    left = {(each.name, offset) for each in narrowed for offset in range(each.start, each.end)}
    assert left <= {(name, offset) for name in names for offset in range(2, 20)}
    for name in names:
        for offset in range(2, 20):
            row = {
                "topic": name.topic,
                "partition": name.partition,
                "offset": offset,
                "timestamp": moment(times[offset]),
                "value": 1,
            }
            if all(TESTS[type(each)](row[column], value) for each, column, value in chosen):
                assert (name, offset) in left


def test_ranges_get_shorter() -> None:
    ranges = [OffsetRange(PartitionName("t", partition), "id", 0, 100) for partition in range(3)]
    chosen = [
        In(("kafka_partition",), (0, 2)),
        GreaterThanOrEqual(("kafka_offset",), 10),
        LessThan(("kafka_offset",), 90),
        GreaterThan(("kafka_timestamp",), moment(50)),
        EqualTo(("partition",), 1),  # of the payload
    ]
    narrowed = Narrowing(chosen, prefix="kafka_").apply(
        ranges, lambda name, _: 40 if name.partition else None
    )
    assert [(each.name.partition, each.start, each.end) for each in narrowed] == [(2, 40, 90)]
