"""Subscribers that hand records out in their own time: in which order, and when."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog import AsyncSubscriber, Subscriber
from tests.subscriber.merged import Growing

FAST = 1e9
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


@settings(max_examples=25)
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


@pytest.mark.parametrize("speed", [0, -1.0, float("inf"), float("nan")])
def test_a_speed_is_a_number_above_0(tmp_path: Path, speed: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        open_all(tmp_path, speed)
