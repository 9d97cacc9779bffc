"""`kafka-reassign-partitions` of Apache Kafka itself, with a plan of 100 partitions: a part of
`make interop`. Left out where `scripts/interop.sh` has not fetched it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic, Producer

from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from tests.e2e.harness import World, wait_for
from tests.interop.run import BUILT
from tests.kafka.test_placed_topics import partitions_of, read_all
from tests.patience import PATIENCE_S

TOOL = BUILT / "java-4.3.1"
PARTITIONS = 100
NODES = 3
TOPIC = "reassigned"

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not list(TOOL.glob("lib/kafka-tools-*.jar")), reason="kafka-tools is not fetched"
    ),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[World]:
    path = tmp_path_factory.mktemp("reassigning")
    with LocalCluster(str(path / "cluster"), ClusterOptions(nodes=NODES)) as cluster:
        cluster.prepare()
        cluster.start()
        yield World(cluster, path)


def tool(boot: str, *arguments: str) -> str:
    """What the tool says; it fails by its exit code."""
    command = [
        "java",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp",
        f"{TOOL}/lib/*",
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        "--bootstrap-server",
        boot,
        *arguments,
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def plan_of(path: Path, wanted: list[list[int]]) -> Path:
    partitions = [
        {"topic": TOPIC, "partition": index, "replicas": nodes}
        for index, nodes in enumerate(wanted)
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}), encoding="utf-8")
    return path


def test_a_plan_of_a_hundred_partitions_is_carried_out(world: World, tmp_path: Path) -> None:
    boot = world.cluster.client_config().kafka_bootstrap
    admin = AdminClient({"bootstrap.servers": boot})
    new = NewTopic(TOPIC, PARTITIONS, 2)
    admin.create_topics([new], request_timeout=PATIENCE_S)[TOPIC].result(PATIENCE_S)
    list(partitions_of(admin, TOPIC))
    producer = Producer({"bootstrap.servers": boot, "enable.idempotence": True})
    for index in range(PARTITIONS):
        for number in range(3):
            producer.produce(TOPIC, b"%d-%d" % (index, number), partition=index)
    assert producer.flush(PATIENCE_S) == 0
    wanted = [[(i + 1 + i // 3) % NODES, (i + i // 3) % NODES] for i in range(PARTITIONS)]
    plan = "--reassignment-json-file", str(plan_of(tmp_path / "plan.json", wanted))
    said = tool(boot, *plan, "--execute")
    assert "Successfully started partition reassignments" in said, said
    assert f"{TOPIC}-" in tool(boot, "--list")
    wait_for(
        lambda: tool(boot, *plan, "--verify").count("is completed.") == PARTITIONS,
        "the tool says that all is done",
        5 * PATIENCE_S,
    )
    assert [nodes for _, nodes in partitions_of(admin, TOPIC)] == wanted
    found = read_all(boot, TOPIC, PARTITIONS, 3 * PARTITIONS)
    assert sorted(found) == sorted(b"%d-%d" % (i, n) for i in range(PARTITIONS) for n in range(3))
