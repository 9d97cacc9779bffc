"""Behind the leader's end: who asks who leads, and who has a transaction open."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from samelog.kafka.any_broker import LEADER_WAIT_S
from tests.e2e.harness import World
from tests.kafka.features import shows
from tests.kafka.wire import Wire, metadata
from tests.patience import PATIENCE_S

TRANSACTIONS = 20
VALUES = [b"%d" % number for number in range(TRANSACTIONS)]
STUCK_S = 20.0
"""Long enough for a new leader, on a machine with much else to do."""


@contextmanager
def killed_at(world: World, number: int) -> Iterator[Callable[[int], None]]:
    """What kills the leader when it is told this number first. It comes back, whatever happens:
    others use the cluster, too.
    """
    leader = world.leader()

    def look(at: int) -> None:
        if at == number and leader.pid is not None:
            leader.kill()

    try:
        yield look
    finally:
        if leader.pid is None:
            leader.start()
            world.wait_live(leader)


def test_the_first_answer_behind_a_leaders_end_names_a_leader_that_lives(
    world: World, topic: str
) -> None:
    """Told of a dead one, or of none, most clients ask again only a second later."""
    leader = world.leader()
    address = world.followers()[0].kafka
    assert address is not None
    with Wire(address) as wire:
        before = metadata(wire, topic)
        leads = before.topics[0].partitions[0].leader_id
        leader.kill()
        asked_at = time.monotonic()
        found = metadata(wire, topic)
        waited_s = time.monotonic() - asked_at
    leader.start()
    world.wait_live(leader)
    told = found.topics[0].partitions[0].leader_id
    assert told != leads
    assert told != -1 or waited_s >= LEADER_WAIT_S
    assert {each.node_id for each in found.brokers} == {each.node_id for each in before.brokers}


@shows("confluent-kafka", "transactions: the leader is killed")
def test_a_transaction_outlives_the_leader(world: World, boot: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": boot, "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    with killed_at(world, TRANSACTIONS // 2) as look:
        for number, value in enumerate(VALUES):
            producer.begin_transaction()
            producer.produce(topic, value)
            look(number)
            producer.commit_transaction(PATIENCE_S)
    assert committed(boot, topic) == VALUES


@shows("kafka-python", "transactions: the leader is killed")
def test_a_transaction_of_kafka_python_outlives_the_leader(
    world: World, boot: str, topic: str
) -> None:
    """It forgets a request if its coordinator refuses the connection, be it the first one of a
    transaction or the last: then its user starts over.
    """

    def begun() -> KafkaProducer:
        while True:
            limit_ms = int(STUCK_S * 1000)
            producer = KafkaProducer(
                bootstrap_servers=boot, transactional_id=topic, max_block_ms=limit_ms
            )
            try:
                producer.init_transactions()
                return producer
            except KafkaTimeoutError:
                left(producer)

    def left(producer: KafkaProducer) -> None:
        with suppress(KafkaTimeoutError):  # of what it has not sent
            producer.close(timeout=0)

    producer = begun()
    with killed_at(world, TRANSACTIONS // 2) as look:
        for number, value in enumerate(VALUES):
            is_there = False
            while not is_there:
                producer.begin_transaction()
                sent = producer.send(topic, value)
                look(number)
                try:
                    sent.get(STUCK_S)
                    within(STUCK_S, producer.commit_transaction)
                    is_there = True
                except (KafkaTimeoutError, TimeoutError):
                    left(producer)
                    producer = begun()
                    is_there = len(committed(boot, topic, number + 1, STUCK_S)) > number
    producer.close()
    assert committed(boot, topic) == VALUES


def within(limit_s: float, call: Callable[[], object]) -> None:
    """Raises TimeoutError: a call that has no bound of its own has not come to its end."""
    outcome = Future[object]()

    def run() -> None:
        try:
            outcome.set_result(call())
        except (KafkaError, RuntimeError) as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    outcome.result(limit_s)


@shows("aiokafka", "transactions: the leader is killed")
def test_a_transaction_of_aiokafka_outlives_the_leader(world: World, boot: str, topic: str) -> None:
    async def body(look: Callable[[int], None]) -> None:
        async with AIOKafkaProducer(bootstrap_servers=boot, transactional_id=topic) as producer:
            for number, value in enumerate(VALUES):
                async with producer.transaction():
                    sent = await producer.send(topic, value)
                    look(number)
                    await sent

    with killed_at(world, TRANSACTIONS // 2) as look:
        asyncio.run(asyncio.wait_for(body(look), 3 * PATIENCE_S))
    assert committed(boot, topic) == VALUES


def committed(
    boot: str, topic: str, count: int = TRANSACTIONS, limit_s: float = PATIENCE_S
) -> list[bytes | None]:
    """What a consumer reads that reads what is committed."""
    given = {"bootstrap.servers": boot, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer(given)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(count, limit_s)
    consumer.close()
    return [message.value() for message in found]
