"""A topic that nodes check: Kafka's clients and publishers of ours, and a leader is killed."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from samelog.format.compression import Codec
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.publisher import RefusedRecord
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.kafka.batches import batch, packed
from tests.kafka.new_topics import create
from tests.kafka.test_producing import of, produce
from tests.kafka.wire import Wire
from tests.patience import PATIENCE_S
from tests.typed.known import schema_text

GOOD, BAD = b'{"a":1}', b'{"a":"x"}'


@pytest.fixture
def checked(world: World, boot: str, tmp_path: Path) -> str:
    """A topic that nodes check."""
    name = create(boot, f"checked-{uuid.uuid4()}", {"schema.enforce": "node"})
    file = tmp_path / "schema.json"
    file.write_text(schema_text("a int32"))
    config = ("--config", world.cluster.client_file)
    assert samelog("schema", "set", name, str(file), *config).returncode == 0
    return name


def wire_to(world: World) -> Wire:
    address = world.cluster.nodes[0].kafka
    assert address is not None
    return Wire(address)


def values(world: World, topic: str, count: int) -> list[bytes | None]:
    return [each.value for each in world.read(count, name=topic, topic=topic)]


def test_a_kafka_client_hears_which_records_do_not_fit(world: World, checked: str) -> None:
    with wire_to(world) as wire:
        answer = produce(wire, checked, batch(GOOD, BAD, b"nothing"))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.invalid_record, -1)
        found = [(e.batch_index, e.batch_index_error_message) for e in answer.record_errors]
        assert found[0] == (1, "column 'a': not int32: " + BAD.decode())
        assert found[1] == (2, "not a JSON object: nothing")
        assert "record 1: column 'a'" in answer.error_message
        for codec in Codec:
            assert produce(wire, checked, packed(codec, GOOD)).error_code == 0
            refused = produce(wire, checked, packed(codec, GOOD, BAD))
            assert refused.error_code == ErrorCode.invalid_record
    assert values(world, checked, len(Codec)) == [GOOD] * len(Codec)


def test_a_retry_of_what_is_refused_is_refused_alike(world: World, checked: str) -> None:
    """And its sequence is free for what comes instead."""
    with wire_to(world) as wire:
        bad, good = of(77, 0), batch(GOOD, producer_id=77, producer_epoch=0, base_sequence=0)
        first = produce(wire, checked, bad)
        again = produce(wire, checked, bad)
        assert first.error_code == again.error_code == ErrorCode.invalid_record
        assert [e.batch_index for e in first.record_errors] == [0, 1]
        assert first.record_errors == again.record_errors
        taken, twice = produce(wire, checked, good), produce(wire, checked, good)
        assert (taken.error_code, taken.base_offset) == (twice.error_code, twice.base_offset)
        assert taken.error_code == 0


def test_a_transaction_with_a_refused_batch_can_only_be_aborted(
    world: World, boot: str, checked: str
) -> None:
    producer = Producer({"bootstrap.servers": boot, "transactional.id": checked})
    producer.init_transactions(PATIENCE_S)
    failed: list[Any] = []

    def transaction(value: bytes) -> None:
        producer.begin_transaction()
        producer.produce(checked, value, partition=0, on_delivery=lambda e, _: failed.append(e))

    transaction(BAD)
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)
    producer.abort_transaction(PATIENCE_S)
    assert failed[0].code() == KafkaError.INVALID_RECORD
    transaction(GOOD)
    producer.commit_transaction(PATIENCE_S)
    assert failed[1] is None


def test_publishers_keep_what_is_refused_and_lose_nothing_else(world: World, checked: str) -> None:
    told: list[RefusedRecord] = []
    directory = world.directory / "publishers" / checked
    with world.publisher(checked, checked, ship=False) as publisher:
        for number in range(30):  # nobody tells it that records are checked
            publisher.append_many([GOOD, b'{"a":"%d"}' % number, GOOD])
    with world.publisher(checked, checked, on_refused=told.append) as publisher:
        publisher.wait_merged(timeout=PATIENCE_S)
    kept = [json.loads(line) for line in (directory / "refused").read_text().splitlines()]
    assert [each["record"] for each in kept] == [1] * 30
    assert [each.value for each in told] == [b'{"a":"%d"}' % number for number in range(30)]
    assert {(each.column, each.expected) for each in told} == {("a", "int32")}
    assert values(world, checked, 60) == [GOOD] * 60
    config = ("--config", world.cluster.client_file)
    assert "a" in samelog("schema", "show", checked, *config).stdout


def test_leaders_are_killed_while_records_are_checked(
    world: World, boot: str, checked: str
) -> None:
    answers: list[Any] = []
    producer = Producer({"bootstrap.servers": boot, "acks": "all", "linger.ms": 0})
    first = world.leader()
    with world.publisher(checked, checked) as publisher:
        publisher.append(GOOD)
        publisher.wait_merged(timeout=PATIENCE_S)
        for number in range(40):
            value = BAD if number % 4 == 0 else GOOD
            producer.produce(checked, value, on_delivery=lambda e, _: answers.append(e))
            producer.poll(0)
            publisher.append(GOOD)
            if number == 15:
                first.kill()
                wait_for(lambda: world.leader() is not first, "another leads")
                first.start()
        publisher.wait_merged(timeout=PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0
    world.wait_live(first)
    taken = sum(each is None for each in answers)
    assert taken <= 30
    found = values(world, checked, 41 + taken)
    assert set(found) == {GOOD}
    world.assert_identical(checked)


def test_a_process_that_is_killed_while_it_checks_is_replaced(world: World, checked: str) -> None:
    with world.publisher(checked, checked) as publisher, wire_to(world) as wire:
        publisher.append(GOOD)
        publisher.wait_merged(timeout=PATIENCE_S)
        node = psutil.Process(world.leader().pid)
        before = {each.pid for each in workers_of(node)}
        assert before
        for each in workers_of(node):
            each.kill()
        publisher.append(GOOD)
        publisher.wait_merged(timeout=PATIENCE_S)
        assert produce(wire, checked, batch(BAD)).error_code == ErrorCode.invalid_record
    assert values(world, checked, 2) == [GOOD] * 2


def workers_of(node: psutil.Process) -> list[psutil.Process]:
    """The processes of a node that check records."""
    children = node.children(recursive=True)
    return [each for each in children if "samelog.sequencer.judging.worker" in each.cmdline()]
