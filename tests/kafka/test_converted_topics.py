"""A topic that is on every node gets another number of copies while Kafka's clients use it."""

from __future__ import annotations

import threading
from collections import defaultdict

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import Consumer, NewTopic, Producer

from samelog.admin.client import ask
from samelog.admin.placement_requests import GetPlacement
from samelog.admin.requests import AlterTopic
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

PARTITIONS = 3
RECORDS = 200
"""Of each partition, at least; more are written until the topic has moved."""


def copies(world: World, topic: str) -> list[int]:
    found = ask(world.cluster.client_config(), GetPlacement()).partitions
    return [len(each.replicas) for each in found if each.topic == topic]


class Writer:
    """An idempotent producer, which writes to all partitions in turn."""

    def __init__(self, boot: str, topic: str) -> None:
        self.stop, self.sent, self.failures = threading.Event(), 0, list[object]()
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": boot, "enable.idempotence": True})

    def run(self) -> None:
        while not self.stop.is_set() or self.sent < RECORDS * PARTITIONS:
            partition = self.sent % PARTITIONS
            value = b"%d" % (self.sent // PARTITIONS)
            self._producer.produce(
                self._topic, value, partition=partition, on_delivery=self._delivered
            )
            self.sent += 1
            self._producer.poll(0)
            self.stop.wait(0.002)
        assert self._producer.flush(2 * PATIENCE_S) == 0

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.failures.append(error)


def test_clients_go_on_while_a_topic_leaves_group_0(world: World, boot: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": boot})
    admin.delete_topics([topic], operation_timeout=PATIENCE_S)[topic].result(PATIENCE_S)
    name = f"{topic}-all"
    made = admin.create_topics([NewTopic(name, PARTITIONS)], request_timeout=PATIENCE_S)
    made[name].result(PATIENCE_S)
    writer = Writer(boot, name)
    writing = threading.Thread(target=writer.run)
    given = {"group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": True}
    consumer = Consumer({"bootstrap.servers": boot, **given})
    consumer.subscribe([name])
    found: defaultdict[int | None, list[tuple[int | None, int]]] = defaultdict(list)

    def read() -> int:
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            found[message.partition()].append((message.offset(), int(message.value() or b"")))
        return sum(map(len, found.values()))

    writing.start()
    try:
        wait_for(lambda: read() > PARTITIONS, "it is read")
        ask(world.cluster.client_config(), AlterTopic(name, {}, (), 1))
        wait_for(lambda: read() >= 0 and copies(world, name) == [1] * PARTITIONS, "it has moved")
    finally:
        writer.stop.set()
        writing.join()
    wait_for(lambda: read() >= writer.sent, "all is read", 2 * PATIENCE_S)
    consumer.close()
    assert not writer.failures
    for records in found.values():
        assert [offset for offset, _ in records] == list(range(len(records)))
        assert [value for _, value in records] == list(range(len(records)))
