"""The whole path with real processes: what is published is there, once, in order, the same
everywhere.
"""

from __future__ import annotations

import threading

import pytest

from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%07d" % number for number in range(first, last)]


@pytest.mark.smoke
def test_what_is_published_is_read_in_order_and_is_the_same_everywhere(world: World) -> None:
    with world.publisher("a") as publisher:
        publisher.append(b"%07d" % 0, key=b"k", headers=[("h", b"v")], timestamp=123)
        publisher.append_many(numbers(1, 20_000))
        publisher.wait_merged(timeout=PATIENCE_S)
    records = world.read(20_000)
    assert [record.value for record in records] == numbers(0, 20_000)
    assert [record.offset for record in records] == list(range(20_000))
    first = records[0]
    assert (first.key, first.timestamp, first.headers) == (b"k", 123, (("h", b"v"),))
    world.wait_offset(20_000)
    world.assert_identical()
    assert world.copied_bytes() == world.merged_bytes(world.cluster.nodes[0])


def test_three_sessions_merge_into_one_order(world: World) -> None:
    def publish(name: str) -> None:
        with world.publisher(name) as publisher:
            for number in range(2_000):
                publisher.append(b"%s-%05d" % (name.encode(), number))
            publisher.wait_merged(timeout=PATIENCE_S)

    threads = [threading.Thread(target=publish, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = [record.value or b"" for record in world.read(6_000)]
    for name in (b"a", b"b", b"c"):
        own = [value for value in values if value.startswith(name)]
        assert own == [b"%s-%05d" % (name, number) for number in range(2_000)]
    world.wait_offset(6_000)
    world.assert_identical()


def test_one_node_is_a_cluster(single: World) -> None:
    with single.publisher("a") as publisher:
        publisher.append_many(numbers(0, 1_000))
        publisher.wait_merged(timeout=PATIENCE_S)
    assert [record.value for record in single.read(1_000)] == numbers(0, 1_000)


@pytest.mark.smoke
def test_a_killed_leader_loses_nothing_and_comes_back_identical(world: World) -> None:
    with world.publisher("a") as publisher:
        publisher.append_many(numbers(0, 5_000))
        publisher.wait_merged(timeout=PATIENCE_S)
        leader = world.leader()
        leader.kill()
        publisher.append_many(numbers(5_000, 10_000))
        publisher.wait_merged(timeout=PATIENCE_S)
        leader.start()
        world.wait_live(leader)
        publisher.append_many(numbers(10_000, 12_000))
        publisher.wait_merged(timeout=PATIENCE_S)
    assert [record.value for record in world.read(12_000)] == numbers(0, 12_000)
    world.wait_offset(12_000)
    world.assert_identical()


@pytest.mark.smoke
def test_all_nodes_killed_at_once_come_back_with_everything(world: World) -> None:
    with world.publisher("a") as publisher:
        publisher.append_many(numbers(0, 5_000))
        publisher.wait_merged(timeout=PATIENCE_S)
        for node in world.cluster.nodes:
            node.kill()
        publisher.append_many(numbers(5_000, 6_000))
        for node in world.cluster.nodes:
            node.start()
        publisher.wait_merged(timeout=PATIENCE_S)
    assert [record.value for record in world.read(6_000)] == numbers(0, 6_000)
    world.wait_offset(6_000)
    world.assert_identical()


def test_a_publisher_works_while_the_cluster_is_down(world: World) -> None:
    for node in world.cluster.nodes:
        node.stop()
    with world.publisher("a") as publisher:
        publisher.append_many(numbers(0, 3_000))
        for node in world.cluster.nodes:
            node.start()
        publisher.wait_merged(timeout=PATIENCE_S)
    assert [record.value for record in world.read(3_000)] == numbers(0, 3_000)


def test_a_node_that_was_away_catches_up(world: World) -> None:
    away = world.followers()[0]
    away.stop()
    with world.publisher("a") as publisher:
        publisher.append_many(numbers(0, 10_000))
        publisher.wait_merged(timeout=PATIENCE_S)
    away.start()
    world.wait_live(away)
    world.wait_offset(10_000)
    world.assert_identical()


def test_a_publishers_runs_follow_each_other(world: World) -> None:
    for run in range(3):
        with world.publisher("a") as publisher:
            publisher.append_many(numbers(run * 100, run * 100 + 100))
            publisher.wait_merged(timeout=PATIENCE_S)
    assert [record.value for record in world.read(300)] == numbers(0, 300)


def test_what_a_run_left_unshipped_ships_with_the_next(world: World) -> None:
    with world.publisher("a", ship=False) as publisher:
        publisher.append_many(numbers(0, 500))
    with world.publisher("a") as publisher:
        publisher.append_many(numbers(500, 1_000))
        publisher.wait_merged(timeout=PATIENCE_S)
    assert [record.value for record in world.read(1_000)] == numbers(0, 1_000)


@pytest.mark.parametrize("codecs", [("none", "none"), ("zstd", "lz4")])
def test_twins_with_a_dedup_id_merge_each_record_once(
    world: World, codecs: tuple[str, str]
) -> None:
    def publish(name: str, step: int, codec: str) -> None:
        with world.publisher(name, dedup_id="feed", compression=codec) as publisher:
            for first in range(0, 3_000, step):
                last = min(first + step, 3_000)
                publisher.append_many(numbers(first, last), first_id=first)
            publisher.wait_merged(timeout=PATIENCE_S)

    shares = (("a", 7, codecs[0]), ("b", 11, codecs[1]))
    twins = [threading.Thread(target=publish, args=share) for share in shares]
    for twin in twins:
        twin.start()
    for twin in twins:
        twin.join()
    world.wait_offset(3_000)
    assert [record.value for record in world.read(3_000)] == numbers(0, 3_000)
    world.assert_identical()


def test_a_subscriber_fails_over_at_the_same_byte(world: World) -> None:
    with world.publisher("a") as publisher, world.subscriber() as subscriber:
        publisher.append_many(numbers(0, 2_000))
        publisher.wait_merged(timeout=PATIENCE_S)
        received = list(subscriber.batch(max_records=2_000, timeout=PATIENCE_S))
        for node in world.cluster.nodes[:1]:
            node.kill()
        publisher.append_many(numbers(2_000, 4_000))

        def rest() -> bool:
            received.extend(subscriber.batch(max_records=4_000, timeout=0.5))
            return len(received) >= 4_000

        wait_for(rest, "the rest after the fail-over")
    assert [record.value for record in received] == numbers(0, 4_000)


@pytest.mark.parametrize("start", ["latest", 1_500])
def test_a_subscriber_may_start_anywhere(world: World, start: str | int) -> None:
    with world.publisher("a") as publisher:
        publisher.append_many(numbers(0, 2_000))
        publisher.wait_merged(timeout=PATIENCE_S)
        with world.subscriber(start=start) as subscriber:
            subscriber.wait_caught_up(timeout=PATIENCE_S)
            publisher.append_many(numbers(2_000, 2_100))
            expected = 100 if start == "latest" else 600
            received: list[bytes | None] = []

            def all_of_it() -> bool:
                batch = subscriber.batch(max_records=600, timeout=0.5)
                received.extend(record.value for record in batch)
                return len(received) >= expected

            wait_for(all_of_it, "records from the start position")
    assert received == numbers(2_100 - expected, 2_100)
