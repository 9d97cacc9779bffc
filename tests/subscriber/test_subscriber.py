"""The subscriber on local files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog import Record, Subscriber
from samelog.subscriber import OffsetNotHere, SubscriberClosed, UnknownTopic
from tests.e2e.harness import wait_for
from tests.examples import at_most
from tests.patience import PATIENCE_S
from tests.subscriber.merged import Growing, numbers


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path)


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def read_to_end(root: Path, **options: Any) -> list[bytes | None]:
    with Subscriber("t", directory=root, follow=False, **options) as subscriber:
        return [record.value for record in subscriber]


# --- reading ------------------------------------------------------------------------------------


def test_all_records_come_in_order(tmp_path: Path, growing: Growing) -> None:
    growing.count(0, 100)
    with Subscriber("t", directory=tmp_path) as subscriber:
        records = list(islice(subscriber, 100))
    assert values(records) == numbers(0, 100)
    assert [record.offset for record in records] == list(range(100))
    assert {(record.topic, record.partition) for record in records} == {("t", 0)}


def test_new_records_wake_a_waiting_reader(tmp_path: Path, growing: Growing) -> None:
    found: list[bytes | None] = []

    def read() -> None:
        with Subscriber("t", directory=tmp_path) as subscriber:
            for record in subscriber:
                found.append(record.value)
                if len(found) == 20:
                    return

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(20):
        growing.count(number, number + 1)
        wait_for(lambda number=number: len(found) > number, "the record")  # type: ignore[misc]
        if number % 5 == 0:
            growing.roll()
    thread.join()
    assert found == numbers(0, 20)


def test_a_partition_that_comes_later_is_read_from_its_start(tmp_path: Path) -> None:
    with Subscriber(["t", "u"], directory=tmp_path, start="latest") as subscriber:
        assert subscriber.batch(10, timeout=0.01) == []
        Growing(tmp_path, "u", 3).append(b"u")
        Growing(tmp_path, "other").append(b"not wanted")
        assert values(subscriber.batch(10, timeout=PATIENCE_S)) == [b"u"]
        Growing(tmp_path, "t").append(b"t")
        assert values(subscriber.batch(10, timeout=PATIENCE_S)) == [b"t"]


def test_partitions_take_turns(tmp_path: Path) -> None:
    for partition in range(3):
        log = Growing(tmp_path, partition=partition)
        for _ in range(4):
            log.append(*[b"%d" % partition] * 1000, batch_bytes=1 << 18)
            log.append(bytes(300_000))
    with Subscriber("t", directory=tmp_path, follow=False) as subscriber:
        order = [record.partition for record in subscriber]
    assert [order.count(partition) for partition in range(3)] == [4004] * 3
    assert {order.index(partition) < 9000 for partition in range(3)} == {True}


def test_only_the_wanted_partitions_are_read(tmp_path: Path) -> None:
    for partition in range(3):
        Growing(tmp_path, partition=partition).append(b"%d" % partition)
    assert sorted(read_to_end(tmp_path, partitions=[0, 2])) == [b"0", b"2"]  # type: ignore[type-var]


def test_not_following_ends_at_the_end_there_was(tmp_path: Path, growing: Growing) -> None:
    growing.count(0, 50)
    with Subscriber("t", directory=tmp_path, follow=False) as subscriber:
        growing.count(50, 60)
        assert values(list(subscriber)) == numbers(0, 50)
        assert subscriber.is_over
        assert subscriber.poll(timeout=0) is None
        assert subscriber.position() == 50


def test_without_a_copy_not_following_ends_at_once(tmp_path: Path) -> None:
    assert read_to_end(tmp_path) == []


def test_batches_and_polls_respect_their_limits(tmp_path: Path, growing: Growing) -> None:
    growing.count(0, 100)
    with Subscriber("t", directory=tmp_path) as subscriber:
        first = subscriber.poll()
        assert first is not None
        assert first.value == b"000000"
        assert values(subscriber.batch(7)) == numbers(1, 8)
        assert values(subscriber.batch(1000, timeout=PATIENCE_S)) == numbers(8, 100)
        assert subscriber.batch(5, timeout=0.02) == []
        assert subscriber.poll(timeout=0) is None
        growing.count(100, 105)
        batches = subscriber.batches(3, timeout=0.02)
        assert [len(next(batches)) for _ in range(3)] == [3, 2, 0]


@settings(max_examples=at_most(40))
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    calls=st.lists(
        st.tuples(st.sampled_from(["batch", "poll", "arrow", "iterate"]), st.integers(1, 30)),
        max_size=12,
    ),
)
def test_any_mix_of_ways_to_read_gives_each_record_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], calls: list[tuple[str, int]]
) -> None:
    root = tmp_path_factory.mktemp("mix")
    growing = Growing(root)
    for number, size in enumerate(sizes):
        growing.count(sum(sizes[:number]), sum(sizes[:number]) + size)
        growing.roll()
    found: list[bytes | None] = []
    with Subscriber("t", directory=root, follow=False) as subscriber:
        for way, count in calls:
            found += read_some(subscriber, way, count)
            assert subscriber.position() == len(found)
        found += values(list(subscriber))
    assert found == numbers(0, sum(sizes))


def read_some(subscriber: Subscriber, way: str, count: int) -> list[bytes | None]:
    if way == "batch":
        return values(subscriber.batch(count, timeout=0))
    if way == "poll":
        record = subscriber.poll(timeout=0)
        return [] if record is None else [record.value]
    if way == "arrow":
        table = subscriber.arrow_records(count, timeout=0)
        found: list[bytes | None] = table["value"].to_pylist()
        return found
    return [record.value for record in islice(subscriber, count)]


def test_arrow_tables_have_the_same_columns_always(tmp_path: Path, growing: Growing) -> None:
    with Subscriber("t", directory=tmp_path) as subscriber:
        empty = subscriber.arrow_records(10, timeout=0)
        growing.append(b"a", None, timestamp=5)
        growing.roll()
        growing.append(b"b", timestamp=6)
        table = subscriber.arrow_records(10, timeout=PATIENCE_S)
    assert empty.schema == table.schema
    assert empty.num_rows == 0
    assert table["value"].to_pylist() == [b"a", None, b"b"]
    assert table["offset"].to_pylist() == [0, 1, 2]


def test_a_handler_gets_every_record_or_batch(tmp_path: Path, growing: Growing) -> None:
    growing.count(0, 30)
    found: list[Any] = []
    with Subscriber("t", directory=tmp_path, follow=False) as subscriber:
        subscriber.run(found.append)
    assert values(found) == numbers(0, 30)
    found.clear()
    with Subscriber("t", directory=tmp_path, follow=False) as subscriber:
        subscriber.run(found.extend, batch=7)
    assert values(found) == numbers(0, 30)


def test_what_a_handler_raises_ends_the_run(tmp_path: Path, growing: Growing) -> None:
    growing.count(0, 5)

    def handle(record: Record) -> None:
        if record.offset == 2:
            raise RuntimeError("no good")

    with (
        Subscriber("t", directory=tmp_path, name="n") as subscriber,
        pytest.raises(RuntimeError, match="no good"),
    ):
        subscriber.run(handle)
    assert read_to_end(tmp_path, name="n") == numbers(2, 5)


# --- where to start -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 0),
        ("latest", 60),
        (25, 25),
        (60, 60),
        ({0: 10}, 10),
        ({}, 0),
        (datetime.fromtimestamp(0.030, UTC), 30),
        (datetime.fromtimestamp(1, UTC), 60),
    ],
)
def test_a_start_is_where_it_says(tmp_path: Path, growing: Growing, start: Any, first: int) -> None:
    for number in range(60):
        growing.append(b"%06d" % number, timestamp=number)
    with Subscriber("t", directory=tmp_path, start=start) as subscriber:
        growing.append(b"000060", timestamp=60)
        assert values(subscriber.batch(1000, timeout=PATIENCE_S)) == numbers(first, 61)


@pytest.mark.parametrize("start", [61, 1000])
def test_an_offset_beyond_the_end_is_refused(tmp_path: Path, growing: Growing, start: int) -> None:
    growing.count(0, 60)
    with pytest.raises(OffsetNotHere, match=r"is beyond the end.*the end is 60"):
        Subscriber("t", directory=tmp_path, start=start)
    assert read_to_end(tmp_path, start=start, auto_offset_reset="earliest") == numbers(0, 60)
    assert read_to_end(tmp_path, start=start, auto_offset_reset="latest") == []


def archived(growing: Growing) -> None:
    growing.count(0, 20)
    growing.roll()
    growing.count(20, 40)
    growing.make_durable()
    growing.archive(0)


def test_an_archived_offset_is_refused_by_naming_the_earliest(
    tmp_path: Path, growing: Growing
) -> None:
    archived(growing)
    with pytest.raises(OffsetNotHere, match="is archived: the earliest available is 20") as caught:
        Subscriber("t", directory=tmp_path, start=5)
    assert caught.value.earliest == 20
    assert read_to_end(tmp_path, start=5, auto_offset_reset="earliest") == numbers(20, 40)
    assert read_to_end(tmp_path, start="earliest") == numbers(20, 40)


def test_a_partition_without_a_local_copy_is_named(tmp_path: Path) -> None:
    Growing(tmp_path)
    with pytest.raises(UnknownTopic, match="no local copy is of partition 5; there are copies of "):
        Subscriber("t", directory=tmp_path, partitions=[5], follow=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "stored"}, "needs a name"),
        ({"start": "newest"}, "newest"),
        ({"start": -1}, "start is -1; it must be 0 to"),
        ({"start": datetime(2020, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"name": "UPPER"}, "UPPER"),
        ({"auto_offset_reset": "none"}, "none"),
        ({"directory": None}, "directory is missing"),
        ({"topics": []}, "topics is empty"),
        ({"topics": "a/b"}, "a/b"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    arguments = {"topics": "t", "directory": tmp_path, **options}
    with pytest.raises(ValueError, match=message):
        Subscriber(**arguments)


# --- stored positions ---------------------------------------------------------------------------


def test_a_named_subscriber_goes_on_where_it_was(tmp_path: Path, growing: Growing) -> None:
    growing.count(0, 10)
    for part in range(5):
        with Subscriber("t", directory=tmp_path, name="n") as subscriber:
            assert values(subscriber.batch(2, timeout=PATIENCE_S)) == numbers(
                part * 2, part * 2 + 2
            )
            subscriber.commit()
    assert read_to_end(tmp_path) == numbers(0, 10)


def test_a_record_counts_once_the_next_one_is_asked_for(tmp_path: Path, growing: Growing) -> None:
    growing.count(0, 10)
    with Subscriber("t", directory=tmp_path, name="n") as subscriber:
        for record in subscriber:
            if record.offset == 3:
                break
    with Subscriber("t", directory=tmp_path, name="n") as subscriber:
        assert values(subscriber.batch(3, timeout=PATIENCE_S)) == numbers(3, 6)
        assert values(subscriber.batch(2, timeout=PATIENCE_S)) == numbers(6, 8)
    assert read_to_end(tmp_path, name="n") == numbers(6, 10)


def test_positions_are_stored_now_and_then(tmp_path: Path, growing: Growing) -> None:
    growing.count(0, 10)
    first = Subscriber("t", directory=tmp_path, name="n", commit_interval_s=0)
    stream = iter(first)
    for _ in range(5):
        next(stream)
    assert read_to_end(tmp_path, name="n", auto_commit=False) == numbers(4, 10)
    first.close()


def test_without_auto_commit_only_commit_stores(tmp_path: Path, growing: Growing) -> None:
    growing.count(0, 10)
    options: dict[str, Any] = {"directory": tmp_path, "name": "n", "auto_commit": False}
    with Subscriber("t", **options) as subscriber:
        subscriber.batch(4, timeout=PATIENCE_S)
        subscriber.batch(4, timeout=PATIENCE_S)
    with Subscriber("t", **options) as subscriber:
        assert values(subscriber.batch(4, timeout=PATIENCE_S)) == numbers(0, 4)
        subscriber.commit()
        subscriber.batch(4, timeout=PATIENCE_S)
    assert read_to_end(tmp_path, name="n", auto_commit=False) == numbers(4, 10)


def test_a_position_in_a_topic_that_was_made_anew_does_not_count(tmp_path: Path) -> None:
    Growing(tmp_path).count(0, 10)
    with Subscriber("t", directory=tmp_path, name="n") as subscriber:
        subscriber.batch(10, timeout=PATIENCE_S)
        subscriber.commit()
    for file in (tmp_path / "t-0").iterdir():
        file.unlink()
    Growing(tmp_path, topic_id="id-2").count(0, 3)
    assert read_to_end(tmp_path, name="n") == numbers(0, 3)


def test_a_stored_position_that_the_copy_has_not_reached_again_is_waited_for(
    tmp_path: Path,
) -> None:
    growing = Growing(tmp_path)
    growing.count(0, 10)
    with Subscriber("t", directory=tmp_path, name="n") as subscriber:
        subscriber.batch(10, timeout=PATIENCE_S)
        subscriber.commit()
    for file in growing.path.iterdir():
        file.unlink()
    growing = Growing(tmp_path)
    with Subscriber("t", directory=tmp_path, name="n") as subscriber:
        growing.count(0, 5)
        assert subscriber.batch(10, timeout=0.1) == []
        growing.count(5, 12)
        assert values(subscriber.batch(10, timeout=PATIENCE_S)) == numbers(10, 12)


def test_a_commit_needs_a_name(tmp_path: Path) -> None:
    with (
        Subscriber("t", directory=tmp_path) as subscriber,
        pytest.raises(ValueError, match="without a name"),
    ):
        subscriber.commit()


# --- control ------------------------------------------------------------------------------------


def test_a_paused_subscriber_hands_out_nothing_until_resumed(
    tmp_path: Path, growing: Growing
) -> None:
    growing.count(0, 10)
    with Subscriber("t", directory=tmp_path) as subscriber:
        stream = iter(subscriber)
        assert next(stream).offset == 0
        subscriber.pause()
        assert subscriber.is_paused
        assert subscriber.batch(5, timeout=0.02) == []
        growing.count(10, 20)
        timer = threading.Timer(0.1, subscriber.resume)
        timer.start()
        assert next(stream).offset == 1
        assert not subscriber.is_paused
        timer.join()
        assert values(subscriber.batch(100, timeout=PATIENCE_S)) == numbers(2, 20)


def test_seek_goes_anywhere_even_while_iterating(tmp_path: Path, growing: Growing) -> None:
    growing.count(0, 30)
    offsets: list[int] = []
    with Subscriber("t", directory=tmp_path, follow=False) as subscriber:
        for record in subscriber:
            offsets.append(record.offset)
            if len(offsets) == 5:
                subscriber.seek(0, 20)
        subscriber.seek(0, 29)
        assert values(subscriber.batch(5, timeout=0)) == numbers(29, 30)
        with pytest.raises(OffsetNotHere):
            subscriber.seek(0, 31)
        with pytest.raises(UnknownTopic):
            subscriber.seek(1, 0)
    assert offsets == [0, 1, 2, 3, 4, *range(20, 30)]


def test_with_several_topics_positions_need_one(tmp_path: Path) -> None:
    Growing(tmp_path, "t").count(0, 3)
    with Subscriber(["t", "u"], directory=tmp_path) as subscriber:
        subscriber.batch(2, timeout=PATIENCE_S)
        assert subscriber.position(0, topic="t") == 2
        with pytest.raises(ValueError, match="one of t, u"):
            subscriber.position()


def interrupted(subscriber: Subscriber, read: Callable[[Subscriber], object]) -> None:
    timer = threading.Timer(0.1, subscriber.close)
    timer.start()
    read(subscriber)
    timer.join()


@pytest.mark.parametrize(
    "read",
    [list, lambda subscriber: subscriber.batch(5), lambda s: list(s.batches(5)), Subscriber.poll],
)
def test_closing_from_another_thread_ends_every_wait(
    tmp_path: Path, growing: Growing, read: Callable[[Subscriber], object]
) -> None:
    interrupted(Subscriber("t", directory=tmp_path), read)


def test_a_closed_subscriber_hands_out_nothing(tmp_path: Path, growing: Growing) -> None:
    growing.count(0, 5)
    subscriber = Subscriber("t", directory=tmp_path)
    stream: Iterator[Record] = iter(subscriber)
    next(stream)
    subscriber.close()
    subscriber.close()
    assert list(stream) == []
    with pytest.raises(SubscriberClosed):
        subscriber.batch()


def test_caught_up_tells_when_everything_was_handed_out(tmp_path: Path, growing: Growing) -> None:
    growing.count(0, 10)
    with Subscriber("t", directory=tmp_path) as subscriber:
        subscriber.wait_caught_up(timeout=PATIENCE_S)
        assert not any(subscriber.caught_up for _ in islice(subscriber, 9))
        assert not subscriber.caught_up
        subscriber.poll()
        assert subscriber.caught_up
        growing.count(10, 11)
        assert not subscriber.caught_up
