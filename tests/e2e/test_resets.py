"""Resets of the whole cluster with real processes and clients: nobody mixes what was before with
what is after.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from samelog import Record, Subscriber
from samelog.cli.local_cluster import LocalNode
from samelog.subscriber import LogReset
from tests import forking
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, read_segments, wait_for
from tests.patience import PATIENCE_S


def publish(world: World, *values: str, session: str = "p") -> None:
    with world.publisher(session) as publisher:
        for value in values:
            publisher.append(value.encode())
        publisher.wait_merged(PATIENCE_S)


def values(records: list[Record]) -> list[str]:
    return [(record.value or b"").decode() for record in records]


def reset(world: World, kind: str) -> dict[str, Any]:
    confirm = ("--confirm", world.cluster.options.cluster)
    done: dict[str, Any] = as_json(
        "cluster", "reset", kind, *confirm, "--config", world.cluster.client_file
    )
    return done


def numbers(prefix: str, count: int) -> list[str]:
    return [f"{prefix} {n}" for n in range(count)]


def parked(node: LocalNode) -> list[str]:
    folder = Path(node.data, "merged", "replaced")
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_nothing_is_done_without_confirmation(world: World) -> None:
    publish(world, *numbers("old", 3))
    world.wait_offset(3)
    config = ("--config", world.cluster.client_file)
    asked = samelog("cluster", "reset", "--hard", *config)
    assert asked.returncode == 1
    assert "THEIR 3 RECORDS" in asked.stderr
    assert samelog("cluster", "reset", "--soft", *config).returncode == 1
    wrong = samelog("cluster", "reset", "--hard", "--confirm", "other", *config)
    assert (wrong.returncode, "does not repeat" in wrong.stderr) == (1, True)
    assert samelog("cluster", "reset", "--confirm", "x", *config).returncode == 2
    world.wait_offset(3)


def test_subscribers_across_both_resets(world: World) -> None:
    """One that wants an error gets one, one that has another rule starts over; the copies are
    those of the nodes, the old ones are kept.
    """
    publish(world, *numbers("old", 5))
    with (
        world.subscriber("strict") as strict,
        world.subscriber("easy", auto_offset_reset="earliest") as easy,
    ):
        for subscriber in (strict, easy):
            assert values(subscriber.batch(5, 30)) == numbers("old", 5)
        reset(world, "--soft")
        publish(world, "between")
        for subscriber in (strict, easy):
            assert values(subscriber.batch(1, 30)) == ["between"]
        before = world.copied_bytes("strict")
        done = reset(world, "--hard")
        assert done["not_yet"] == []
        with pytest.raises(LogReset, match="t-0 was restarted"):
            strict.batch(1, 30)
        publish(world, *numbers("new", 3))
        got: list[str] = []
        while len(got) < 3:
            records = easy.batch(3, 30)
            assert records
            assert [record.offset for record in records] == list(
                range(len(got), len(got) + len(records))
            )
            got += values(records)
        assert got == numbers("new", 3)
    world.wait_offset(3)
    world.assert_identical()
    assert world.copied_bytes("easy") == world.merged_bytes(world.cluster.nodes[0])
    for node in world.cluster.nodes:
        (aside,) = parked(node)
        assert read_segments(os.path.join(node.data, "merged", "replaced", aside)) == before
    assert world.copied_bytes("strict") == before
    with world.subscriber("strict", auto_offset_reset="earliest") as strict:
        got = []
        while len(got) < 9:
            got += values(strict.batch(9, 30))
    assert got == [*numbers("old", 5), "between", *numbers("new", 3)]
    copies = world.directory / "subscribers" / "strict" / "replaced"
    (old,) = copies.iterdir()
    assert read_segments(str(old)) == before
    world.assert_identical()


def test_a_node_that_is_down_and_a_leader_that_dies(world: World) -> None:
    """The node does the same when it is back; the reset outlives the leader."""
    publish(world, *numbers("old", 50))
    world.wait_offset(50)
    away = world.followers()[0]
    away.kill()
    done = reset(world, "--hard")
    assert len(done["not_yet"]) == 1
    leader = world.leader()
    leader.kill()
    away.start()
    publish(world, *numbers("new", 20), session="q")
    leader.start()
    for node in (away, leader):
        world.wait_live(node)
    world.wait_offset(20)
    world.assert_identical()
    assert values(world.read(20)) == numbers("new", 20)
    assert len({tuple(parked(node)) for node in world.cluster.nodes}) == 1
    assert len(parked(away)) == 1
    events = world.status(away).events  # type: ignore[union-attr]
    assert [event.kind for event in events] == ["hard-reset"]


def test_a_publisher_goes_on_across_it_exactly_once(world: World) -> None:
    """What was not merged before the reset is merged after it; what was, is not merged again."""
    total = 3000
    with world.publisher("p") as publisher:
        for n in range(total):
            publisher.append(f"{n:06d}".encode())
            if n == total // 4:
                publisher.wait_merged(PATIENCE_S)
            if n == total // 2:
                reset(world, "--hard")
        publisher.wait_merged(PATIENCE_S)
    wait_for(lambda: len({world.merged_bytes(n) for n in world.cluster.nodes}) == 1, "the same")
    status = world.status(world.leader())
    assert status is not None
    end = status.partitions[0].end_offset
    assert 0 < end < total
    assert values(world.read(end)) == [f"{n:06d}" for n in range(total - end, total)]


def test_an_idempotent_producer_goes_on_across_it(world: World) -> None:
    publish(world, "first")
    producer = Producer(
        {
            "bootstrap.servers": world.cluster.client_config().kafka_bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
        }
    )
    wrong: list[KafkaError] = []

    def note(error: KafkaError | None, message: object) -> None:
        if error is not None:
            wrong.append(error)

    for n in range(600):
        producer.produce("t", b"%06d" % n, on_delivery=note)
        producer.poll(0.001)
        if n == 150:
            assert producer.flush(PATIENCE_S) == 0
        if n == 300:
            reset(world, "--hard")
    assert producer.flush(PATIENCE_S) == 0
    assert wrong == []
    status = world.status(world.leader())
    assert status is not None
    end = status.partitions[0].end_offset
    assert 0 < end < 600
    assert values(world.read(end)) == [f"{n:06d}" for n in range(600 - end, 600)]


def consumer(world: World, group: str, **options: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": world.cluster.client_config().kafka_bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 1000,
            **options,
        }
    )


def consume(
    reader: Consumer, count: int, *, may_begin_again: bool = False
) -> list[tuple[int, str]]:
    """The next records: (offset, value). A consumer that is assigned the partition again, having
    committed nothing, may begin again.
    """
    found: list[tuple[int, str]] = []

    def has_all() -> bool:
        message = reader.poll(0.5)
        if message is not None and message.error() is None:
            if may_begin_again and message.offset() == 0:
                found.clear()
            found.append((message.offset() or 0, (message.value() or b"").decode()))
        return len(found) >= count

    wait_for(has_all, f"{count} records, of which came {found}")
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_kafka_consumer_across_both_resets(world: World, protocol: str) -> None:
    publish(world, *numbers("old", 5))
    options: dict[str, object] = {"enable.auto.commit": False, "group.protocol": protocol}
    reader = consumer(world, "g", **options)
    reader.subscribe(["t"])
    assert [value for _, value in consume(reader, 5)] == numbers("old", 5)
    reader.commit(asynchronous=False)
    reset(world, "--soft")
    publish(world, "between")
    assert consume(reader, 1) == [(5, "between")]
    reset(world, "--hard")
    publish(world, *numbers("new", 8))
    assert consume(reader, 8, may_begin_again=True) == list(enumerate(numbers("new", 8)))
    reader.commit(asynchronous=False)
    reader.close()


def test_what_was_committed_before_means_nothing_after_it(world: World) -> None:
    publish(world, *numbers("old", 5))
    reader = consumer(world, "g", **{"enable.auto.commit": False})
    reader.subscribe(["t"])
    consume(reader, 5)
    reader.commit(asynchronous=False)
    known = reader.committed([TopicPartition("t", 0)], timeout=PATIENCE_S)
    assert [each.offset for each in known] == [5]
    positions = reader.position([TopicPartition("t", 0)])
    reset(world, "--hard")
    publish(world, *numbers("new", 9))
    stale = [TopicPartition("t", 0, 5, leader_epoch=positions[0].leader_epoch)]
    with pytest.raises(KafkaException) as refused:
        reader.commit(offsets=stale, asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.FENCED_LEADER_EPOCH
    reader.close()
    again = consumer(world, "g")
    again.subscribe(["t"])
    assert consume(again, 9) == list(enumerate(numbers("new", 9)))
    again.close()


@pytest.mark.parametrize("rule", ["earliest", "error"])
def test_local_readers_of_a_sidecars_copies_across_it(world: World, rule: str) -> None:
    """The sidecar starts over by itself; readers of its files notice."""
    publish(world, *numbers("old", 5))
    copies = str(world.directory / "kept")
    arguments = ["sidecar", "subscriber", "--topic", "t"]
    arguments += ["--dir", copies, "--config", world.cluster.client_file]
    with (world.directory / "sidecar.log").open("ab") as log:
        sidecar = forking.fork(arguments, log)
    with Subscriber("t", directory=copies, start="earliest", auto_offset_reset=rule) as reader:
        try:
            assert values(take(reader, 5)) == numbers("old", 5)
            reset(world, "--hard")
            publish(world, *numbers("new", 9))
            if rule == "error":
                with pytest.raises(LogReset):
                    take(reader, 1)
            else:
                assert values(take(reader, 9)) == numbers("new", 9)
        finally:
            sidecar.terminate()
            sidecar.wait(PATIENCE_S)
    assert read_segments(os.path.join(copies, "t-0")) == world.merged_bytes(world.cluster.nodes[0])
    assert len(os.listdir(os.path.join(copies, "replaced"))) == 1


def take(reader: Subscriber, count: int) -> list[Record]:
    """So many records, however many calls it takes."""
    found: list[Record] = []

    def has_all() -> bool:
        found.extend(reader.batch(count - len(found), timeout=0.5))
        return len(found) >= count

    wait_for(has_all, f"{count} records")
    return found
