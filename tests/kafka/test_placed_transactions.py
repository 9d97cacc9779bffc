"""Transactions over partitions in several data groups, with librdkafka and kafka-python."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    NewTopic,
    Producer,
    TopicPartition,
)
from kafka import KafkaProducer

from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

PARTITIONS = 6
SPREAD = [[0, 1], [1, 2], [2, 0], [1, 0], [2, 1], [0, 2]]
"""Six groups, led by all nodes."""


@pytest.fixture
def placed(boot: str) -> str:
    """A topic in six groups, with two replicas each."""
    name = f"placed-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": boot})
    topic = NewTopic(name, PARTITIONS, replica_assignment=SPREAD)
    admin.create_topics([topic], request_timeout=PATIENCE_S)[name].result(PATIENCE_S)
    wait_for(
        lambda: all(
            each.leader >= 0
            for each in admin.list_topics(name, timeout=PATIENCE_S).topics[name].partitions.values()
        ),
        "leaders",
    )
    return name


@contextmanager
def producer(boot: str, name: str) -> Iterator[Producer]:
    settings = {
        "bootstrap.servers": boot,
        "transactional.id": name,
        "transaction.timeout.ms": int(PATIENCE_S * 1000),
    }
    made = Producer(settings)
    made.init_transactions(PATIENCE_S)
    yield made


def write(made: Producer, topic: str, values: list[bytes], *, also: str | None = None) -> None:
    for number, value in enumerate(values):
        made.produce(topic, value, partition=number % PARTITIONS)
    if also is not None:
        made.produce(also, b"also", partition=0)
    assert made.flush(PATIENCE_S) == 0


@contextmanager
def reader(boot: str, topic: str, isolation: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": boot,
            "group.id": f"g-{uuid.uuid4()}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    try:
        yield consumer
    finally:
        consumer.close()


def read(boot: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All that there is to read, until every partition has said that it ends."""
    found, ended = list[bytes](), set[int]()
    with reader(boot, topic, isolation) as consumer:
        while len(ended) < PARTITIONS:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{len(found)} records, ends of {ended}"
            if message.error() is None:
                found.append(message.value() or b"")
            else:
                ended.add(message.partition() or 0)
    return sorted(found)


def values(kind: str, count: int = 18) -> list[bytes]:
    return sorted(b"%s-%02d" % (kind.encode(), number) for number in range(count))


def test_all_of_a_transaction_is_read_or_nothing(boot: str, placed: str, topic: str) -> None:
    with producer(boot, placed) as made:
        made.begin_transaction()
        write(made, placed, values("first"), also=topic)
        assert read(boot, placed) == []
        assert read(boot, placed, "read_uncommitted") == values("first")
        made.commit_transaction(PATIENCE_S)
        assert read(boot, placed) == values("first")
        made.begin_transaction()
        write(made, placed, values("aborted"), also=topic)
        made.abort_transaction(PATIENCE_S)
        assert read(boot, placed) == values("first")
        for number in range(5):
            made.begin_transaction()
            write(made, placed, values(f"more{number}"))
            made.commit_transaction(PATIENCE_S)
    more = [each for number in range(5) for each in values(f"more{number}")]
    assert read(boot, placed) == sorted(values("first") + more)


def test_who_is_fenced_commits_nothing(boot: str, placed: str) -> None:
    with producer(boot, placed) as old:
        old.begin_transaction()
        write(old, placed, values("old"))
        with producer(boot, placed) as new:
            new.begin_transaction()
            write(new, placed, values("new"))
            new.commit_transaction(PATIENCE_S)
        with pytest.raises(KafkaException):
            old.commit_transaction(PATIENCE_S)
    assert read(boot, placed) == values("new")


def test_offsets_are_committed_with_it(boot: str, placed: str) -> None:
    with producer(boot, placed) as made, reader(boot, placed, "read_committed") as consumer:
        made.begin_transaction()
        write(made, placed, values("x"))
        offsets = [TopicPartition(placed, 3, 7)]
        made.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        made.commit_transaction(PATIENCE_S)
        (after,) = consumer.committed([TopicPartition(placed, 3)], PATIENCE_S)
        assert after.offset == 7


def test_kafka_python(boot: str, placed: str) -> None:
    made = KafkaProducer(bootstrap_servers=boot, transactional_id=placed)
    made.init_transactions()
    for fate in ("commit", "abort", "commit"):
        made.begin_transaction()
        sent = [made.send(placed, b"%s" % fate.encode(), partition=p) for p in range(PARTITIONS)]
        for each in sent:
            each.get(PATIENCE_S)
        getattr(made, f"{fate}_transaction")()
    made.close()
    assert read(boot, placed) == [b"commit"] * 2 * PARTITIONS


def test_transactions_end_whichever_node_dies(world: World, boot: str, placed: str) -> None:
    """A leader of group 0 and of data groups is killed in each phase; what was said to be committed
    is read whole, and of the rest nothing, or all of it.
    """
    fates: dict[str, bool | None] = {}
    with producer(boot, placed) as made:
        for number, node in enumerate([*world.cluster.nodes, world.leader(), world.leader()]):
            kind = f"kill{number}"
            made.begin_transaction()
            write(made, placed, values(kind, 6))
            node.kill()
            node.start()  # two replicas do without none
            try:
                write(made, placed, values(kind + "b", 6))
                made.commit_transaction(PATIENCE_S)
                fates[kind] = True
            except KafkaException as error:
                fates[kind] = _given_up(made, error)
            world.wait_live(node)
    found = read(boot, placed)
    for kind, fate in fates.items():
        parts = [[value in found for value in values(name, 6)] for name in (kind, kind + "b")]
        flat = [each for part in parts for each in part]
        assert all(flat) or not any(flat), (kind, flat)
        assert fate is None or all(flat) is fate, (kind, fate)
    assert len(found) == len(set(found))


def _given_up(made: Producer, error: KafkaException) -> bool | None:
    """Abort what cannot be committed; None: nobody knows what became of it."""
    fault = error.args[0]
    if not fault.txn_requires_abort():
        raise error
    made.abort_transaction(PATIENCE_S)
    return False
