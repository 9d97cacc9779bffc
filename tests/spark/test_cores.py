"""What decides: offsets, limits, cutting and packing, places, options."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.spark.errors import BadOption, SourceError
from samelog.spark.options import ReadMode, parse_options
from samelog.spark.plan.catalogue import OffsetBounds, TopicState
from samelog.spark.plan.offsets import (
    OffsetRange,
    PartitionName,
    StreamOffset,
    parse,
    ranges_between,
)
from samelog.spark.plan.progress import (
    advance,
    begin_stream,
    count,
    cut,
    is_idle,
    limit_ends,
    losses,
    pack,
)
from samelog.spark.plan.range_limits import LATEST, OffsetRangeLimit, parse_offsets, settle

NAMES = st.builds(PartitionName, st.sampled_from(["a", "b", "c"]), st.integers(0, 12))
OFFSETS = st.integers(0, 1 << 40)


@st.composite
def ends(draw: st.DrawFn) -> StreamOffset:
    """Journalled offsets."""
    to = draw(st.dictionaries(NAMES, OFFSETS))
    begin = draw(st.dictionaries(st.sampled_from(sorted(to)), OFFSETS)) if to else {}
    return StreamOffset({name.topic: f"id of {name.topic}" for name in to}, to, begin)


@given(ends())
def test_offsets_survive_the_journal(end: StreamOffset) -> None:
    text = json.dumps(end.to_json())
    assert parse(json.loads(text)) == end


@given(ends(), st.randoms())
def test_equal_offsets_are_equal_texts(end: StreamOffset, random: object) -> None:
    mixed = StreamOffset(
        dict(reversed(list(end.logs.items()))), dict(reversed(list(end.to.items()))), end.begin
    )
    assert json.dumps(mixed.to_json()) == json.dumps(end.to_json())
    assert list(end.to_json()) == sorted(end.to_json())


@given(st.dictionaries(NAMES, st.tuples(OFFSETS, st.integers(0, 10_000))), st.integers(1, 20_000))
def test_limits_are_used_and_never_exceeded(
    backlog: dict[PartitionName, tuple[int, int]], most: int
) -> None:
    begins = {name: begin for name, (begin, _) in backlog.items()}
    last = {name: begin + size for name, (begin, size) in backlog.items()}
    limited = limit_ends(begins, last, most)
    assert limited.keys() == last.keys()
    assert all(begins[name] <= limited[name] <= last[name] for name in last)
    read = sum(limited[name] - begins[name] for name in last)
    assert read == min(most, sum(size for _, size in backlog.values()))


RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 300)), max_size=8).map(
    lambda sizes: [
        OffsetRange(PartitionName("t", number), "id", start, start + size)
        for number, (start, size) in enumerate(sizes)
    ]
)


@given(RANGES, st.integers(1, 40), st.none() | st.integers(1, 400), st.integers(0, 400))
def test_tasks_have_every_offset_once_in_order(
    ranges: list[OffsetRange], at_least: int, most: int | None, small: int
) -> None:
    total = sum(each.size for each in ranges)
    pieces = cut(ranges, at_least=at_least, most=most)
    tasks = pack(pieces, small=small, at_least=at_least)
    flattened = [piece for task in tasks for piece in task]
    offsets = [(each.name, offset) for each in flattened for offset in range(each.start, each.end)]
    assert offsets == [(each.name, o) for each in ranges for o in range(each.start, each.end)]
    assert len(tasks) >= min(at_least, total)
    assert all(piece.size <= (most or total) for piece in flattened)
    assert all(sum(piece.size for piece in task) <= small for task in tasks if len(task) > 1)


BOUNDS = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(
    lambda b: OffsetBounds(b[0], b[0] + b[1])
)


@given(st.dictionaries(st.integers(0, 5), BOUNDS, min_size=1), st.integers(1, 30))
def test_a_stream_reads_everything_once_whatever_the_limit(
    partitions: dict[int, OffsetBounds], most: int
) -> None:
    catalogue = {"t": TopicState("id", partitions)}
    first = begin_stream(catalogue, {PartitionName("t", n): b.start for n, b in partitions.items()})
    read = ranges_between(None, first)
    at = first
    while True:
        end = advance(at, catalogue, {}, most=most)
        if is_idle(at, end):
            break
        ranges = ranges_between(at, end)
        assert sum(each.size for each in ranges) == count(at, end) <= most
        read += ranges
        at = end
    assert losses(at, catalogue) == []
    offsets = [(each.name.partition, o) for each in read for o in range(each.start, each.end)]
    assert sorted(offsets) == sorted(
        (n, o) for n, b in partitions.items() for o in range(b.start, b.end)
    )


def test_a_batch_never_goes_back() -> None:
    name = PartitionName("t", 0)
    with pytest.raises(SourceError, match="t-0: the batch would go back, from offset 9 to 4"):
        ranges_between(StreamOffset({"t": "id"}, {name: 9}), StreamOffset({"t": "id"}, {name: 4}))
    with pytest.raises(SourceError, match="does not say where the partition starts"):
        ranges_between(StreamOffset({}, {}), StreamOffset({"t": "id"}, {name: 4}))


def test_a_lagging_look_never_takes_a_query_back() -> None:
    name = PartitionName("t", 0)
    start = StreamOffset({"t": "id"}, {name: 9})
    behind = {"t": TopicState("id", {0: OffsetBounds(0, 4)})}
    assert is_idle(start, advance(start, behind, {}, most=None))


@given(BOUNDS, st.integers(-2, 120))
def test_places_are_within_the_bounds_or_refused(bounds: OffsetBounds, offset: int) -> None:
    name = PartitionName("t", 0)
    places = parse_offsets("startingOffsets", json.dumps({"t": {"0": offset}}))
    if offset >= 0 and not bounds.start <= offset <= bounds.end:
        with pytest.raises(BadOption, match=f"t-0 has offset {offset}"):
            settle(places, {name: bounds}, lambda *_: None)
    else:
        settled = settle(places, {name: bounds}, lambda *_: None)[name]
        assert settled == {-2: bounds.start, -1: bounds.end}.get(offset, offset)


def test_a_time_before_the_first_record_that_is_left_is_the_start() -> None:
    name = PartitionName("t", 0)
    places = OffsetRangeLimit("startingTimestamp", 17, is_time=True)
    assert settle(places, {name: OffsetBounds(5, 9)}, lambda *_: 3) == {name: 5}
    assert settle(places, {name: OffsetBounds(5, 9)}, lambda *_: None) == {name: 9}


# --- options ---------------------------------------------------------------------------------


def test_names_of_options_are_taken_in_any_case() -> None:
    told = {"SUBSCRIBE": "b, a", "readmode": "Local", "startingoffsets": "LATEST"}
    options = parse_options(told)
    assert options.selection.topics == ("a", "b")
    assert options.access.mode is ReadMode.LOCAL
    assert options.start_of(is_stream=False).everywhere == LATEST


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, "give one of subscribe, subscribePattern, assign; found: none"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "found: subscribe and assign"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribe": "a/b"}, "subscribe: 'a/b' is not a valid topic name"),
        ({"subscribePattern": "("}, "subscribePattern: '\\(' is no regular expression"),
        ({"assign": "[1]"}, 'assign: .* write {"topic": '),
        ({"assign": '{"a": [-1]}'}, "-1 is no partition"),
        ({"assign": '{"a": 3}'}, "assign: .* is not understood"),
        ({"subscribe": "a", "startingOffsets": "soon"}, "'soon' is not understood; allowed is"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "a-0 has offset -3"),
        ({"subscribe": "a", "startingOffsets": '{"a": 3}'}, "is not understood"),
        ({"subscribe": "a", "startingOffsets": "{}"}, "names no partition"),
        ({"subscribe": "a", "startingTimestamp": "noon"}, "'noon' is no time in ms"),
        ({"subscribe": "a", "startingTimestamp": "-5"}, "'-5' is no time in ms since 1970"),
        (
            {"subscribe": "a", "endingOffsets": "latest", "endingTimestamp": "5"},
            "endingOffsets and endingTimestamp contradict each other",
        ),
        (
            {"subscribe": "a", "startingOffsets": "latest", "startingTimestamp": "5"},
            "startingOffsets and startingTimestamp contradict each other: give one of them",
        ),
        (
            {"subscribe": "a", "startingOffsetsByTimestamp": "{}", "startingOffsets": "latest"},
            "startingOffsets and startingOffsetsByTimestamp contradict each other",
        ),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "cannot end at earliest"),
        ({"subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, "cannot end at earliest"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger: 0 is below 1"),
        ({"subscribe": "a", "minPartitions": "two"}, "'two' is no whole number"),
        ({"subscribe": "a", "readMode": "far"}, "'far' is not one of auto, local, remote"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "write 500ms, 30s or 15m"),
        (
            {"subscribe": "a", "maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2"},
            "minOffsetsPerTrigger, 2, is above maxOffsetsPerTrigger, 1",
        ),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "x"}, "is not error or latest"),
        ({"subscribe": "a", "maxOfsets": "1"}, "maxOfsets is no option; those there are: sub"),
        ({"subscribe": "a", "failOnDataLoss": "maybe"}, "'maybe' is not true or false"),
    ],
)
def test_bad_options_say_what_is_wrong(told: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        parse_options(told)
