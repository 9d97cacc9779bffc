"""Kafka's own formatters read `__consumer_offsets` and `__transaction_state`: a part of `make
interop`. Left out where `scripts/interop.sh` has not fetched kafka-tools.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.harness import World
from tests.interop.run import BUILT
from tests.kafka.test_state_topics import commit
from tests.patience import PATIENCE_S

TOOLS = BUILT / "java-4.3.1"
FORMATTERS = "org.apache.kafka.tools.consumer"
TOPIC, PARTITIONS = "orders", 2

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not list(TOOLS.glob("lib/kafka-tools-*.jar")), reason="kafka-tools is not fetched"
    ),
]


def shown(boot: str, topic: str, formatter: str) -> Iterator[dict[str, Any]]:
    """What Kafka's console consumer makes of a topic: JSON of a key and a value, one by one."""
    command = [
        "java",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp",
        f"{TOOLS}/lib/*",
        f"{FORMATTERS}.ConsoleConsumer",
        *("--bootstrap-server", boot, "--topic", topic, "--from-beginning"),
        *("--formatter", f"{FORMATTERS}.{formatter}", "--timeout-ms", "15000"),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    text, decoder = ran.stdout.strip(), json.JSONDecoder()
    assert text, ran.stderr
    while text:
        found, end = decoder.raw_decode(text)
        yield found
        text = text[end:].lstrip()


def test_the_console_consumer_shows_offsets_groups_and_transactions(world: World) -> None:
    boot = world.cluster.client_config().kafka_bootstrap
    admin = AdminClient({"bootstrap.servers": boot})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(PATIENCE_S)
    name = f"tx-{uuid.uuid4()}"
    producer = Producer({"bootstrap.servers": boot, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for number in range(10):
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    producer.commit_transaction(PATIENCE_S)
    commit(boot, "billing", TOPIC, 3)
    consumer = Consumer({"bootstrap.servers": boot, "group.id": "live"})
    consumer.subscribe([TOPIC])
    while not consumer.assignment():
        consumer.poll(0.5)
    consumer.commit(offsets=[TopicPartition(TOPIC, 1, 2)], asynchronous=False)

    offsets = {
        (each["key"]["data"]["group"], each["key"]["data"]["partition"]): each["value"]["data"]
        for each in shown(boot, "__consumer_offsets", "OffsetsMessageFormatter")
    }
    assert offsets["billing", 0]["offset"] == 3
    assert offsets["live", 1]["offset"] == 2
    groups = {
        each["key"]["data"]["group"]: each["value"]["data"]
        for each in shown(boot, "__consumer_offsets", "GroupMetadataMessageFormatter")
    }
    assert [each["memberId"] for each in groups["live"]["members"]] == [consumer.memberid()]
    assert groups["live"]["protocolType"] == "consumer"
    transactions = {
        each["key"]["data"]["transactionalId"]: each["value"]["data"]
        for each in shown(boot, "__transaction_state", "TransactionLogMessageFormatter")
    }
    assert transactions[name]["transactionStatus"] in ("COMPLETE_COMMIT", 4)
    consumer.close()
