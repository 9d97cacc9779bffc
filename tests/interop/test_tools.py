"""Kafka's own command-line tools administer a cluster: a part of `make interop`. Those that the
clients' build lacks are of Kafka 4.1.1. Left out where `scripts/interop.sh` has not fetched
kafka-tools.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.maven import OLDER_KAFKA, Unavailable, jars
from tests.e2e.harness import World, wait_for
from tests.interop.conftest import running
from tests.interop.run import BUILT
from tests.patience import PATIENCE_S

BUILD = BUILT / "java-4.3.1"
NODES = 3
TIMEOUT_S = 200.0

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not list(BUILD.glob("lib/kafka-tools-*.jar")), reason="kafka-tools is not fetched"
    ),
]


@cache
def program(name: str) -> tuple[str, ...]:
    """What runs a tool; skips the test if neither build has it."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    start = "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", quiet, "-cp"
    for jar in BUILD.glob("lib/kafka-tools-*.jar"):
        with ZipFile(jar) as archive:
            for entry in archive.namelist():
                if entry.endswith(f"/{name}.class"):
                    place = entry.removesuffix(".class").replace("/", ".")
                    return *start, f"{BUILD}/lib/*", place
    try:
        return *start, os.pathsep.join(jars(OLDER_KAFKA)), f"kafka.admin.{name}"
    except Unavailable as error:
        pytest.skip(str(error))


class Tools:
    """Those of Kafka, for one cluster."""

    def __init__(self, boot: str) -> None:
        self.boot = boot

    def say(self, name: str, *arguments: str) -> str:
        """What one says; it fails by its exit code."""
        command = [*program(name), "--bootstrap-server", self.boot, *arguments]
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def configure(self, kind: str, name: str, *arguments: str) -> str:
        """Settings of something."""
        return self.say("ConfigCommand", "--entity-type", kind, "--entity-name", name, *arguments)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(tmp_path_factory.mktemp("tools"), NODES) as found:
        yield found


@pytest.fixture
def tools(world: World) -> Tools:
    return Tools(world.cluster.client_config().kafka_bootstrap)


@pytest.fixture
def topic(tools: Tools) -> str:
    """With ten records in the first of three partitions."""
    name = f"t-{uuid.uuid4()}"
    tools.say("TopicCommand", "--create", "--topic", name, "--partitions", "3")
    producer = Producer({"bootstrap.servers": tools.boot})
    for number in range(10):
        producer.produce(name, b"%d" % number, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return name


def test_topics_and_their_settings(tools: Tools, topic: str) -> None:
    lists = "cleanup.policy=[compact,delete],retention.ms=3600000,min.insync.replicas=2"
    tools.configure("topics", topic, "--alter", "--add-config", lists)
    told = tools.configure("topics", topic, "--describe")
    assert "cleanup.policy=compact,delete" in told
    assert "retention.ms=3600000" in told
    tools.configure("topics", topic, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=3600000" not in tools.configure("topics", topic, "--describe")
    tools.say("TopicCommand", "--alter", "--topic", topic, "--partitions", "5")
    described = tools.say("TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 5" in described
    assert f"ReplicationFactor: {NODES}" in described
    assert topic in tools.say("TopicCommand", "--list").split()
    tools.say("TopicCommand", "--delete", "--topic", topic)
    wait_for(lambda: topic not in tools.say("TopicCommand", "--list"), "it is gone")


def test_offsets_and_records(tools: Tools, topic: str, tmp_path: Path) -> None:
    assert f"{topic}:0:10" in tools.say("GetOffsetShell", "--topic", topic).split()
    below = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 4}]}
    (tmp_path / "below.json").write_text(json.dumps(below), encoding="utf-8")
    told = tools.say("DeleteRecordsCommand", "--offset-json-file", f"{tmp_path}/below.json")
    assert "low_watermark: 4" in told
    earliest = tools.say("GetOffsetShell", "--topic", topic, "--time", "-2")
    assert f"{topic}:0:4" in earliest.split()


def test_groups(tools: Tools, topic: str) -> None:
    group = f"g-{uuid.uuid4()}"
    consumer = Consumer({"bootstrap.servers": tools.boot, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    consumer.close()
    assert group in tools.say("ConsumerGroupCommand", "--list").split()
    assert group in tools.say("GroupsCommand", "--list")
    of_group = "--group", group

    def place() -> list[str]:
        """Offset, end and lag."""
        lines = tools.say("ConsumerGroupCommand", "--describe", *of_group).splitlines()
        rows = (line.split() for line in lines)
        (row,) = (row for row in rows if row[:3] == [group, topic, "0"])
        return row[3:6]

    assert place() == ["7", "10", "3"]
    reset = "--reset-offsets", "--topic", topic, "--to-earliest", "--execute"
    tools.say("ConsumerGroupCommand", *of_group, *reset)
    assert place() == ["0", "10", "10"]
    tools.configure("groups", group, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert "50000" in tools.configure("groups", group, "--describe")
    assert "successful" in tools.say("ConsumerGroupCommand", "--delete", *of_group)


def test_transactions(tools: Tools, topic: str) -> None:
    name = f"tx-{uuid.uuid4()}"
    producer = Producer({"bootstrap.servers": tools.boot, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    assert producer.flush(PATIENCE_S) == 0

    def told(*arguments: str) -> list[list[str]]:
        """The rows of a table."""
        return [line.split() for line in tools.say("TransactionsCommand", *arguments).splitlines()]

    place = "--topic", topic, "--partition", "0"
    assert [row[-1] for row in told("list") if row[0] == name] == ["Ongoing"]
    (described,) = (row for row in told("describe", "--transactional-id", name) if name in row)
    assert {"Ongoing", f"{topic}-0"} <= set(described)
    (writing,) = (row for row in told("describe-producers", *place) if row[-1] == "10")
    assert writing[0] in described
    assert not any(topic in row for row in told("find-hanging", *place))
    tools.say("TransactionsCommand", "abort", *place, "--start-offset", "10")

    def states() -> list[str]:
        return [row[-1] for row in told("list") if row[0] == name]

    wait_for(lambda: states() == ["CompleteAbort"], "it is aborted")


def test_acls_users_and_quotas(tools: Tools, topic: str) -> None:
    who = "--allow-principal", "User:bob", "--operation", "Read", "--topic", topic
    tools.say("AclCommand", "--add", *who)
    listed = tools.say("AclCommand", "--list", "--topic", topic)
    assert "User:bob" in listed
    assert "READ" in listed
    tools.say("AclCommand", "--remove", "--force", *who)
    assert "User:bob" not in tools.say("AclCommand", "--list", "--topic", topic)
    secret = "SCRAM-SHA-256=[iterations=8192,password=secret]"
    tools.configure("users", "bob", "--alter", "--add-config", secret)
    tools.configure("users", "bob", "--alter", "--add-config", "producer_byte_rate=1000000")
    shown = tools.configure("users", "bob", "--describe")
    assert "SCRAM-SHA-256=iterations=8192" in shown
    assert "producer_byte_rate=1000000" in shown
    tools.configure("clients", "app", "--alter", "--add-config", "consumer_byte_rate=2000000")
    assert "consumer_byte_rate=2000000" in tools.configure("clients", "app", "--describe")


def test_nodes_their_disks_and_the_quorum(tools: Tools, topic: str) -> None:
    lines = tools.say("LogDirsCommand", "--describe", "--topic-list", topic).splitlines()
    (told,) = (json.loads(line) for line in lines if line.startswith("{"))
    sizes: dict[Any, list[int]] = {}
    for broker in told["brokers"]:
        for part in broker["logDirs"][0]["partitions"]:
            sizes.setdefault(part["partition"], []).append(part["size"])
    assert len(sizes[f"{topic}-0"]) == NODES
    status = tools.say("MetadataQuorumCommand", "describe", "--status")
    assert "LeaderId:" in status
    rows = map(
        str.split, tools.say("MetadataQuorumCommand", "describe", "--replication").splitlines()
    )
    ends = [(int(row[2]), int(row[3])) for row in rows if row[-1] in {"Leader", "Follower"}]
    assert len(ends) == NODES
    assert all(end > 0 and lag >= 0 for end, lag in ends)  # whichever node was asked
    versions = tools.say("BrokerApiVersionsCommand")
    assert versions.count("-> (") == NODES
    assert "Produce(0): 0 to 13" in versions
    assert "transaction.version" in tools.say("FeatureCommand", "describe")
    shown = tools.configure("brokers", "0", "--describe", "--all")
    assert "log.dirs=" in shown
    assert topic not in tools.say("ClientMetricsCommand", "--list")
    elected = "--election-type", "preferred", "--topic", topic, "--partition", "0"
    assert "Valid replica already elected" in tools.say("LeaderElectionCommand", *elected)
