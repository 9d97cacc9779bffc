"""Subscribers that hand records out in their own time: in which order, and when."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog import AsyncSubscriber, Subscriber
from tests.examples import at_most
from tests.subscriber.merged import Growing

FAST = 1e9
NOW_MS = 1_764_000_000_000
TIMES = st.lists(st.integers(0, 50), min_size=1, max_size=12)


def open_all(path: Path, speed: float, **options: object) -> Subscriber:
    return Subscriber("t", directory=path, follow=False, replay=speed, **options)  # type: ignore[arg-type]


def in_their_time(times: list[list[int]]) -> list[tuple[int, int]]:
    """(when a record is due, its partition) of all, in order."""
    due = []
    for partition, own in enumerate(times):
        newest = own[0]
        for at in own:
            newest = max(newest, at)
            due.append((newest, partition))
    return sorted(due, key=lambda each: each[0])


@settings(max_examples=at_most(25))
@given(st.lists(TIMES, min_size=1, max_size=3))
def test_partitions_come_in_the_order_of_time(
    tmp_path_factory: pytest.TempPathFactory, times: list[list[int]]
) -> None:
    path = tmp_path_factory.mktemp("replay")
    for partition, own in enumerate(times):
        values = [b"%d" % number for number in range(len(own))]
        Growing(path, partition=partition).append(*values, timestamp=own)
    with open_all(path, FAST) as subscriber:
        records = list(subscriber)
    newest: dict[int, int] = {}
    seen = []
    for record in records:
        at = max(newest.get(record.partition, record.timestamp), record.timestamp)
        newest[record.partition] = at
        seen.append(at)
    assert seen == sorted(seen)
    assert seen == [at for at, _ in in_their_time(times)]
    for partition, own in enumerate(times):
        mine = [each.offset for each in records if each.partition == partition]
        assert mine == list(range(len(own)))


def test_no_record_comes_before_its_time(tmp_path: Path) -> None:
    Growing(tmp_path).append(b"a", b"b", b"c", timestamp=[1000, 1400, 1400])
    with open_all(tmp_path, 2.0) as subscriber:
        began = time.monotonic()
        assert [each.value for each in subscriber.batch(10)] == [b"a"]
        assert subscriber.batch(10, 0.0) == []
        assert [each.value for each in subscriber.batch(10)] == [b"b", b"c"]
        assert time.monotonic() - began >= 0.2
        assert subscriber.batch(10) == []


def test_rows_of_arrow_come_in_their_time_too(tmp_path: Path) -> None:
    Growing(tmp_path).append(b"a", b"d", timestamp=[0, 300])
    Growing(tmp_path, partition=1).append(b"b", b"c", timestamp=[100, 200])
    with open_all(tmp_path, FAST) as subscriber:
        found = []
        while not subscriber.is_over:
            found += subscriber.arrow_records(1, 0.1)["value"].to_pylist()
    assert found == [b"a", b"b", b"c", b"d"]


def test_an_asynchronous_subscriber_waits_for_their_time(tmp_path: Path) -> None:
    Growing(tmp_path).append(b"a", b"b", timestamp=[0, 100])

    async def body() -> None:
        async with AsyncSubscriber("t", directory=tmp_path, follow=False, replay=1.0) as reader:
            began = time.monotonic()
            found = [await reader.batch(5), await reader.batch(5)]
            assert [[each.value for each in some] for some in found] == [[b"a"], [b"b"]]
            assert time.monotonic() - began >= 0.1

    asyncio.run(body())


def test_it_begins_at_a_time_and_follows(tmp_path: Path) -> None:
    log = Growing(tmp_path)
    log.append(b"a", b"b", timestamp=[0, 100_000])
    with Subscriber("t", directory=tmp_path, start=1, replay=1.0) as subscriber:
        assert [each.value for each in subscriber.batch(10)] == [b"b"]
        log.append(b"c", timestamp=[100_000])
        assert [each.value for each in subscriber.batch(10)] == [b"c"]


ANY_TIME = [-(1 << 63), -1, 0, NOW_MS, NOW_MS * 1000, NOW_MS * 10**6, (1 << 63) - 1]


@settings(max_examples=at_most(25), deadline=None)
@given(st.lists(st.lists(st.sampled_from(ANY_TIME), min_size=1, max_size=6), max_size=3))
def test_a_replay_ends_whatever_timestamps_are(
    tmp_path_factory: pytest.TempPathFactory, times: list[list[int]]
) -> None:
    path = tmp_path_factory.mktemp("replay")
    for partition, own in enumerate(times):
        log = Growing(path, partition=partition)
        for at in own:
            log.append(b"%d" % at, timestamp=at)
    with open_all(path, 1e6, max_gap=0.001) as subscriber:
        found: list[list[int]] = [[] for _ in times]
        deadline = time.monotonic() + 30
        while not subscriber.is_over and time.monotonic() < deadline:
            for record in subscriber.batch(100, 1.0):
                found[record.partition].append(record.timestamp)
    assert found == times


def test_microseconds_among_milliseconds_are_due_with_what_is_behind_them(tmp_path: Path) -> None:
    times = [NOW_MS, NOW_MS + 1, NOW_MS * 1000, NOW_MS + 2, NOW_MS + 3]
    log = Growing(tmp_path)
    for at in times:
        log.append(b"%d" % at, timestamp=at)
    with open_all(tmp_path, 1e6, max_gap=3600.0) as subscriber:
        assert [record.timestamp for record in subscriber] == times


def test_the_log_says_what_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = Growing(tmp_path)
    for at in (NOW_MS, NOW_MS * 1000):
        log.append(b"x", timestamp=at)
    with open_all(tmp_path, 1.0, max_gap=0.3) as subscriber:
        assert len(list(subscriber)) == 2
    (line,) = (each.getMessage() for each in caplog.records if "replay waits" in each.getMessage())
    assert f"for t-0, offset 1, whose timestamp is {NOW_MS * 1000} ms" in line
    assert "longer than max_gap (0.3 s)" in line


@pytest.mark.parametrize("max_gap", [0, -1.0, float("nan")])
def test_a_longest_gap_is_a_number_above_0(tmp_path: Path, max_gap: float) -> None:
    with pytest.raises(ValueError, match="max_gap"):
        open_all(tmp_path, 1.0, max_gap=max_gap)
    with pytest.raises(ValueError, match="no meaning without replay"):
        Subscriber("t", directory=tmp_path, max_gap=1.0)


@pytest.mark.parametrize("speed", [0, -1.0, float("inf"), float("nan")])
def test_a_speed_is_a_number_above_0(tmp_path: Path, speed: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        open_all(tmp_path, speed)
