"""Transactions, with real clients where they have them, and by hand where the bytes matter."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from samelog.format.batch import Attribute
from tests.e2e.harness import World, wait_for
from tests.kafka.batches import batch, put
from tests.kafka.features import TRANSACTIONS, shows
from tests.kafka.wire import Wire
from tests.patience import PATIENCE_S

PRODUCE, FIND, INIT, ADD, OFFSETS, END, MARKERS = 0, 10, 22, 24, 25, 26, 27
DESCRIBE, LIST, PRODUCERS = 65, 66, 61
ERROR = attrgetter("error_code")


def producer_of(boot: str, name: str, **more: Any) -> Producer:
    return Producer({"bootstrap.servers": boot, "transactional.id": name, "linger.ms": 0} | more)


def consumer_of(boot: str, level: str, **more: Any) -> Consumer:
    given = {"bootstrap.servers": boot, "group.id": str(uuid.uuid4()), "isolation.level": level}
    return Consumer(given | {"enable.auto.commit": False, "enable.partition.eof": True} | more)


def values(boot: str, topic: str, level: str = "read_committed", partition: int = 0) -> list[bytes]:
    """All that a consumer sees until it is told that it is at the end."""
    consumer = consumer_of(boot, level)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[bytes] = []

    def at_end() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
        return message is not None and message.error() is not None

    wait_for(at_end, f"the end of {topic}")
    consumer.close()
    return found


def end_of(boot: str, topic: str, level: str) -> int:
    consumer = consumer_of(boot, level)
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
    consumer.close()
    return int(end)


@pytest.fixture
def name() -> str:
    """A transactional id of the test's own."""
    return f"t-{uuid.uuid4()}"


@pytest.fixture
def topics(boot: str) -> list[str]:
    """Two topics of two partitions."""
    names = [f"topic-{uuid.uuid4()}" for _ in range(2)]
    admin = AdminClient({"bootstrap.servers": boot})
    for made in admin.create_topics([NewTopic(each, 2) for each in names]).values():
        made.result(PATIENCE_S)
    return names


# --- confluent ----------------------------------------------------------------------------------


@shows("confluent-kafka", TRANSACTIONS[0])
def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    boot: str, topics: list[str], name: str
) -> None:
    producer = producer_of(boot, name)
    producer.init_transactions(PATIENCE_S)
    for number, is_commit in enumerate((True, False, True, True, False)):
        producer.begin_transaction()
        for topic in topics:
            for partition in range(2):
                producer.produce(topic, b"%d" % number, partition=partition)
        if is_commit:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
    for topic in topics:
        for partition in range(2):
            assert values(boot, topic, partition=partition) == [b"0", b"2", b"3"]
            every = values(boot, topic, "read_uncommitted", partition)
            assert every == [b"0", b"1", b"2", b"3", b"4"]


def test_nothing_behind_an_open_transaction_is_seen(boot: str, topic: str, name: str) -> None:
    first, second = producer_of(boot, name), producer_of(boot, name + "x")
    for producer in (first, second):
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    first.produce(topic, b"first")
    first.flush(PATIENCE_S)
    second.produce(topic, b"second")
    second.commit_transaction(PATIENCE_S)
    assert values(boot, topic) == []
    assert values(boot, topic, "read_uncommitted") == [b"first", b"second"]
    assert [end_of(boot, topic, f"read_{kind}committed") for kind in ("", "un")] == [0, 3]
    first.abort_transaction(PATIENCE_S)
    assert values(boot, topic) == [b"second"]
    assert end_of(boot, topic, "read_committed") == 4


def test_a_marker_may_be_what_is_newest(boot: str, topic: str, name: str) -> None:
    producer = producer_of(boot, name)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for text in (b"0", b"1"):
        producer.produce(topic, text, timestamp=1000)
    producer.commit_transaction(PATIENCE_S)
    assert newest(boot, topic)[0] == 2
    ahead = 1000 * int(time.time() + 3600)
    producer.begin_transaction()
    producer.produce(topic, b"3", timestamp=ahead)
    producer.commit_transaction(PATIENCE_S)
    assert newest(boot, topic) == (3, ahead)


def newest(boot: str, topic: str) -> tuple[int, int]:
    """Offset and timestamp."""
    spec: Any = OffsetSpec
    admin = AdminClient({"bootstrap.servers": boot})
    (found,) = admin.list_offsets({TopicPartition(topic, 0): spec.max_timestamp()}).values()
    told = found.result(PATIENCE_S)
    return int(told.offset), int(told.timestamp)


@shows("confluent-kafka", TRANSACTIONS[2])
def test_a_zombie_is_fenced(boot: str, topic: str, name: str) -> None:
    zombie = producer_of(boot, name)
    zombie.init_transactions(PATIENCE_S)
    zombie.begin_transaction()
    zombie.produce(topic, b"lost")
    zombie.flush(PATIENCE_S)
    heir = producer_of(boot, name)
    heir.init_transactions(PATIENCE_S)
    zombie.produce(topic, b"late")
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    heir.begin_transaction()
    heir.produce(topic, b"kept")
    heir.commit_transaction(PATIENCE_S)
    assert values(boot, topic) == [b"kept"]


def test_a_transaction_of_a_producer_that_is_gone_ends_by_itself(
    boot: str, topic: str, name: str
) -> None:
    gone = producer_of(boot, name, **{"transaction.timeout.ms": 1000})
    gone.init_transactions(PATIENCE_S)
    gone.begin_transaction()
    gone.produce(topic, b"lost")
    gone.flush(PATIENCE_S)
    wait_for(lambda: end_of(boot, topic, "read_committed") == 2, "the marker")
    assert values(boot, topic) == []
    gone.produce(topic, b"late")
    with pytest.raises(KafkaException):
        gone.commit_transaction(PATIENCE_S)


@shows("confluent-kafka", TRANSACTIONS[1])
def test_consume_transform_produce_is_exactly_once(boot: str, topics: list[str], name: str) -> None:
    """Half of the transactions are aborted, and done again by another producer."""
    source, sink = topics
    plain = Producer({"bootstrap.servers": boot})
    for number in range(20):
        plain.produce(source, b"%d" % number, partition=0)
    plain.flush(PATIENCE_S)
    group, done = str(uuid.uuid4()), 0
    for life in range(4):
        producer = producer_of(boot, name)
        producer.init_transactions(PATIENCE_S)
        given = {"group.id": group, "auto.offset.reset": "earliest"}
        consumer = consumer_of(boot, "read_committed", **given)
        consumer.subscribe([source])
        done = 0
        for is_commit in (True, False) if life < 3 else (True,) * 20:
            message = next_of(consumer)
            if message is None:
                break
            done += 1
            producer.begin_transaction()
            producer.produce(sink, b"<%s>" % message.value(), partition=0)
            at = consumer.position([TopicPartition(source, 0)])
            producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), PATIENCE_S)
            if is_commit:
                producer.commit_transaction(PATIENCE_S)
            else:
                producer.abort_transaction(PATIENCE_S)
        consumer.close()
    assert done == 17
    assert values(boot, sink) == [b"<%d>" % number for number in range(20)]


def next_of(consumer: Consumer) -> Any:
    """The next record; None at the end of partition 0."""
    found: list[Any] = []

    def told() -> bool:
        message = consumer.poll(1.0)
        if message is None or (message.error() is not None and message.partition() != 0):
            return False
        found.append(message if message.error() is None else None)
        return True

    wait_for(told, "a record, or the end")
    return found[0]


# --- by hand ------------------------------------------------------------------------------------


class Hand:
    """A transactional producer of whom every byte is known."""

    def __init__(self, wires: list[Wire], name: str, topic: str) -> None:
        self.wires, self.name, self.topic = wires, name, topic
        given = self.asked(INIT, 4, {"transactional_id": name, "transaction_timeout_ms": 60_000})
        assert given.error_code == 0
        self.id, self.epoch, self.sequence = given.producer_id, given.producer_epoch, 0

    def coordinator(self) -> Wire:
        """A connection to the node that leads."""
        found: list[Wire] = []

        def known() -> bool:
            leader = self.wires[0].ask(FIND, 3, {"key": self.name, "key_type": 1})
            address = (leader.host, leader.port)
            found[:] = [wire for wire in self.wires if wire.socket.getpeername() == address]
            return bool(found)

        wait_for(known, "a coordinator")
        return found[0]

    def asked(
        self, key: int, version: int, tree: dict[str, Any], error: Callable[[Any], int] = ERROR
    ) -> Any:
        """What the coordinator answers, whichever node that is by then."""
        found: list[Any] = []

        def answered() -> bool:
            found[:] = [self.coordinator().ask(key, version, tree)]
            return error(found[0]) not in (14, 15, 16)

        wait_for(answered, "an answer of the coordinator")
        return found[0]

    def added(self, *topics: str) -> list[int]:
        """The error of each topic."""
        tree = {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self.id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": each, "partitions": [0]} for each in topics],
        }

        def errors(answer: Any) -> list[int]:
            found = answer.results_by_topic_v3_and_below
            return [each.results_by_partition[0].partition_error_code for each in found]

        return errors(self.asked(ADD, 3, tree, lambda answer: errors(answer)[0]))

    def produce(self, value: bytes, version: int = 9, **changed: Any) -> int:
        """The error; 0: it is merged."""
        given = {"id": self.id, "epoch": self.epoch, "name": self.name, "flags": 0x10, "acks": -1}
        given |= {"wire": self.wires[0]} | changed
        sequence = {"base_sequence": self.sequence, "producer_epoch": given["epoch"]}
        data = batch(value, producer_id=given["id"], **sequence)
        records = {"index": 0, "records": put(21, ">H", given["flags"])(data)}
        tree = {
            "transactional_id": given["name"],
            "acks": given["acks"],
            "timeout_ms": 10_000,
            "topic_data": [{"name": self.topic, "partition_data": [records]}],
        }
        answer = given["wire"].ask(PRODUCE, version, tree)
        error = answer.responses[0].partition_responses[0].error_code
        self.sequence += not error
        return int(error)

    def end(self, version: int = 3, *, committed: bool = True) -> Any:
        tree = {"transactional_id": self.name, "producer_id": self.id, "committed": committed}
        return self.asked(END, version, tree | {"producer_epoch": self.epoch})


@pytest.fixture
def wires(world: World) -> Iterator[list[Wire]]:
    """A connection to every node."""
    found = [Wire(node.kafka) for node in world.cluster.nodes if node.kafka is not None]
    yield found
    for wire in found:
        wire.socket.close()


@pytest.fixture
def hand(wires: list[Wire], name: str, topic: str) -> Hand:
    """With no transaction yet."""
    return Hand(wires, name, topic)


def test_batches_are_taken_only_into_an_open_transaction(hand: Hand, wires: list[Wire]) -> None:
    assert hand.produce(b"too early") == 48
    assert hand.added(hand.topic) == [0]
    assert hand.produce(b"another's", id=hand.id + 1) == 49
    assert hand.produce(b"another epoch", epoch=hand.epoch + 1) == 47
    assert hand.produce(b"nobody's", name=None) == 53
    assert hand.produce(b"unheard", acks=1) == 21
    assert hand.produce(b"outside", flags=0, name=None) == 0  # nothing of it is in this log yet
    assert hand.produce(b"any node", wire=wires[1]) == 0
    assert hand.produce(b"outside", flags=0, name=None) == 48
    assert hand.end().error_code == 0
    assert hand.produce(b"too late") == 48
    assert hand.end().error_code == 0  # asked again
    assert hand.end(committed=False).error_code == 48


def test_the_second_protocol_has_an_epoch_for_each(hand: Hand, boot: str, topic: str) -> None:
    assert hand.produce(b"one", 12) == 0
    old, ended = hand.epoch, hand.end(5)
    assert (ended.error_code, ended.producer_epoch) == (0, old + 1)
    assert hand.end(5).producer_epoch == old + 1  # asked again
    hand.sequence = 0
    assert hand.produce(b"late", 12) == 47
    hand.epoch = old + 1
    assert hand.produce(b"two", 12) == 0
    assert hand.end(5, committed=False).producer_epoch == old + 2
    assert values(boot, topic) == [b"one"]


def test_only_the_leader_coordinates(hand: Hand) -> None:
    tree = {"transactional_id": hand.name, "transaction_timeout_ms": 60_000}

    def refuse() -> bool:
        leader = hand.coordinator()
        others = [wire for wire in hand.wires if wire is not leader]
        return all(wire.ask(INIT, 4, tree).error_code == 16 for wire in others)

    wait_for(refuse, "a refusal of those that do not lead")
    assert hand.asked(INIT, 4, tree | {"transaction_timeout_ms": 0}).error_code == 50
    assert hand.asked(INIT, 4, tree | {"transactional_id": ""}).error_code == 42


def test_partitions_are_added_all_or_none(hand: Hand) -> None:
    assert hand.added(hand.topic, "missing") == [55, 3]
    assert hand.produce(b"x") == 48


def test_tools_see_transactions(hand: Hand, wires: list[Wire]) -> None:
    assert hand.added(hand.topic) == [0]
    assert hand.produce(b"x") == 0
    asked = {"transactional_ids": [hand.name, "missing"]}
    states = hand.asked(DESCRIBE, 0, asked, lambda answer: answer.transaction_states[0].error_code)
    found, missing = states.transaction_states
    assert (found.transaction_state, found.producer_id) == ("Ongoing", hand.id)
    assert [(each.topic, each.partitions) for each in found.topics] == [(hand.topic, (0,))]
    assert missing.error_code == 105
    everything: dict[str, Any] = {"state_filters": ["Ongoing", "?"], "duration_filter": -1}
    everything["producer_id_filters"] = [hand.id]

    def listed() -> bool:
        answers = [wire.ask(LIST, 1, everything) for wire in wires]
        assert answers[0].unknown_state_filters == ("?",)
        return sum(len(each.transaction_states) for each in answers) == 1

    wait_for(listed, "one node that lists it")
    in_log = {"topics": [{"name": hand.topic, "partition_indexes": [0]}]}
    (known,) = wires[0].ask(PRODUCERS, 0, in_log).topics[0].partitions[0].active_producers
    assert known.current_txn_start_offset == 0


def test_clients_write_no_markers(hand: Hand) -> None:
    marker = {
        "producer_id": hand.id,
        "producer_epoch": hand.epoch,
        "transaction_result": True,
        "topics": [{"name": hand.topic, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    found = hand.wires[0].ask(MARKERS, 1, {"markers": [marker]}).markers[0].topics[0].partitions
    assert [each.error_code for each in found] == [31]
    assert hand.produce(b"x", flags=int(Attribute.TRANSACTIONAL | Attribute.CONTROL)) == 87


def test_an_administrator_aborts_what_hangs(hand: Hand, boot: str, topic: str) -> None:
    """At any node, and only the transaction that is open."""
    assert hand.added(hand.topic) == [0]
    assert hand.produce(b"x") == 0

    def aborted(epoch: int) -> int:
        marker = {
            "producer_id": hand.id,
            "producer_epoch": epoch,
            "transaction_result": False,
            "topics": [{"name": hand.topic, "partition_indexes": [0]}],
            "coordinator_epoch": 0,
        }
        answer = hand.wires[1].ask(MARKERS, 1, {"markers": [marker]})
        return int(answer.markers[0].topics[0].partitions[0].error_code)

    assert aborted(hand.epoch + 1) == 47
    assert aborted(hand.epoch) == 0
    assert hand.produce(b"late") in (47, 48)
    assert aborted(hand.epoch) == 47
    assert values(boot, topic) == []
