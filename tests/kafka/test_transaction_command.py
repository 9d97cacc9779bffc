"""`samelog transaction` against a real cluster, as an operator types it."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import KafkaException, Producer

from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World
from tests.kafka.test_transactions import values
from tests.patience import PATIENCE_S


def test_a_transaction_is_listed_described_and_aborted(world: World, boot: str, topic: str) -> None:
    config, name = ("--config", world.cluster.client_file), f"t-{uuid.uuid4()}"
    producer = Producer({"bootstrap.servers": boot, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    assert name not in samelog("transaction", "list", "--open", *config).stdout
    assert "has no open transaction: it is Empty" in abort(world, name)
    producer.begin_transaction()
    producer.produce(topic, b"lost")
    producer.flush(PATIENCE_S)
    (listed,) = as_json("transaction", "list", "--open", *config)
    assert (listed["transactional_id"], listed["state"]) == (name, "Ongoing")
    found = as_json("transaction", "describe", name, *config)
    assert found["partitions"] == [{"topic": topic, "partition": 0, "first_offset": 0}]
    assert topic in samelog("transaction", "describe", name, *config).stdout
    aborted = as_json("transaction", "abort", name, *config)
    assert aborted["transaction"]["state"] in ("PrepareAbort", "CompleteAbort")
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)
    heir = Producer({"bootstrap.servers": boot, "transactional.id": name})
    heir.init_transactions(PATIENCE_S)
    heir.begin_transaction()
    heir.produce(topic, b"kept")
    heir.commit_transaction(PATIENCE_S)
    assert values(boot, topic) == [b"kept"]
    assert "there is no transactional id 'x'" in abort(world, "x")


def abort(world: World, name: str) -> str:
    """What is said against it."""
    return samelog("transaction", "abort", name, "--config", world.cluster.client_file).stderr
