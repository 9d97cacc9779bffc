"""Behind the leader's end: who asks who leads, and who has a transaction open."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition

from samelog.kafka.any_broker import LEADER_WAIT_S
from tests.e2e.harness import World
from tests.kafka.features import shows
from tests.kafka.wire import Wire, metadata
from tests.patience import PATIENCE_S

TRANSACTIONS = 20


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
    leader = world.leader()
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        if number == TRANSACTIONS // 2:
            leader.kill()
        producer.commit_transaction(PATIENCE_S)
    leader.start()
    world.wait_live(leader)
    given = {"bootstrap.servers": boot, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer(given)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(TRANSACTIONS, PATIENCE_S)
    consumer.close()
    assert [message.value() for message in found] == [b"%d" % n for n in range(TRANSACTIONS)]
