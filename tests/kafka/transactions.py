"""Transactions of a Kafka producer over several partitions, and what a Kafka consumer sees of them.

The consumer is the twin of whoever else reads what is committed.
"""

from __future__ import annotations

import uuid
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.patience import PATIENCE_S

PARTITIONS = 3
Seen = dict[int, list[bytes]]
"""Partition -> values, in order."""


def make_topic(boot: str) -> str:
    """A topic of several partitions."""
    name = f"topic-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": boot})
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(PATIENCE_S)
    return name


class Transactional:
    """A producer; each transaction has records in all partitions."""

    def __init__(self, boot: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": boot, "transactional.id": f"{topic}-{uuid.uuid4()}"}
        )
        self._producer.init_transactions(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del self._producer

    def begin(self, value: bytes, count: int = 3) -> None:
        """Begin a transaction, and have its records acknowledged."""
        self._producer.begin_transaction()
        self.send(value, count)

    def send(self, value: bytes, count: int = 3) -> None:
        """More records of the transaction."""
        for number in range(count * PARTITIONS):
            text = b"%b-%d" % (value, number)
            self._producer.produce(self._topic, text, partition=number % PARTITIONS)
        assert self._producer.flush(PATIENCE_S) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE_S)


def send_plain(boot: str, topic: str, value: bytes, partition: int) -> None:
    """Records of no transaction."""
    producer = Producer({"bootstrap.servers": boot})
    for number in range(3):
        producer.produce(topic, b"%b-%d" % (value, number), partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def seen_by_kafka(boot: str, topic: str) -> Seen:
    """What is committed now, to a Kafka consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": boot,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    consumer.assign(places)
    seen: Seen = {number: [] for number in range(PARTITIONS)}
    at_end: set[int] = set()
    while len(at_end) < PARTITIONS:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error():
            at_end.add(message.partition() or 0)
        else:
            seen[message.partition() or 0].append(message.value() or b"")
    consumer.close()
    return seen
