"""What tools ask about the cluster as a whole, on a real one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient

from samelog.config.load import load_node
from tests.e2e.harness import World, wait_for
from tests.kafka.wire import Wire
from tests.patience import PATIENCE_S

CLUSTER_LOG = "__cluster_metadata"


@pytest.fixture
def wires(world: World) -> Iterator[list[Wire]]:
    """A connection to every node."""
    found = [Wire(node.kafka) for node in world.cluster.nodes if node.kafka is not None]
    yield found
    for wire in found:
        wire.socket.close()


def test_what_each_node_has_of_a_partition(
    world: World, boot: str, topic: str, wires: list[Wire]
) -> None:
    producer = Producer({"bootstrap.servers": boot})
    producer.produce(topic, b"v" * 5_000)
    assert producer.flush(PATIENCE_S) == 0
    directories = {load_node(node.config_file).data for node in world.cluster.nodes}

    def there(wire: Wire) -> Any:
        asked = [{"topic": topic, "partitions": [0, 7]}]
        (found,) = wire.ask(35, 4, {"topics": asked}).results
        return found

    wait_for(
        lambda: all(there(wire).topics[0].partitions[0].partition_size > 5_000 for wire in wires),
        "it is on every node",
    )
    assert {there(wire).log_dir for wire in wires} == directories
    (partition,) = there(wires[0]).topics[0].partitions  # there is no partition 7
    assert partition.offset_lag == 0
    assert 0 < there(wires[0]).usable_bytes <= there(wires[0]).total_bytes
    everything = wires[0].ask(35, 1, {"topics": None}).results[0].topics
    assert topic in {each.name for each in everything}


def test_what_each_node_has_of_a_data_group(boot: str, topic: str, wires: list[Wire]) -> None:
    name = f"{topic}-placed"
    admin = AdminClient({"bootstrap.servers": boot})
    made = NewTopic(name, 2, replica_assignment=[[0, 2], [1, 2]])
    admin.create_topics([made])[name].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": boot, "acks": "all"})
    for partition in range(2):
        producer.produce(name, b"v" * 5_000, partition=partition)
    assert producer.flush(PATIENCE_S) == 0

    def there(wire: Wire) -> set[int]:
        (found,) = wire.ask(35, 4, {"topics": [{"topic": name, "partitions": [0, 1]}]}).results
        rows = [each for known in found.topics for each in known.partitions]
        assert all(each.offset_lag in (0, 1) for each in rows)
        return {int(each.partition_index) for each in rows if each.partition_size > 5_000}

    wait_for(lambda: [there(wire) for wire in wires] == [{0}, {1}, {0, 1}], "each has its own")


def test_kafka_python_reads_log_directories(boot: str, topic: str) -> None:
    client = KafkaAdminClient(bootstrap_servers=boot)
    found = str(client.describe_log_dirs())
    client.close()
    assert topic in found


def test_the_quorum_is_rafts(world: World, wires: list[Wire]) -> None:
    asked = [{"topic_name": CLUSTER_LOG, "partitions": [{"partition_index": 0}]}]
    leader = wires[world.cluster.nodes.index(world.leader())]
    answer = leader.ask(55, 2, {"topics": asked})
    (partition,) = answer.topics[0].partitions
    assert int(partition.error_code) == 0
    voters = {each.replica_id: each.log_end_offset for each in partition.current_voters}
    assert set(voters) == {node.node_id for node in answer.nodes}
    assert all(each.name.isupper() for node in answer.nodes for each in node.listeners)
    assert partition.leader_id in voters
    assert min(voters.values()) > 0  # the leader knows of all
    assert partition.high_watermark <= max(voters.values())
    assert partition.leader_epoch > 0
    nobody = [{"topic_name": "t", "partitions": [{"partition_index": 0}]}]
    refused = leader.ask(55, 0, {"topics": nobody}).topics[0].partitions[0]
    assert int(refused.error_code) == 3
    for follower in (wire for wire in wires if wire is not leader):
        ends = ends_by(follower, asked)
        assert set(ends) == set(voters)
        assert ends[partition.leader_id] == max(ends.values())


def ends_by(wire: Wire, asked: Any) -> dict[int, int]:
    """Where all members are, once they have told the node that is asked."""
    found: dict[int, int] = {}

    def is_told() -> bool:
        (partition,) = wire.ask(55, 2, {"topics": asked}).topics[0].partitions
        found.update({each.replica_id: each.log_end_offset for each in partition.current_voters})
        return min(found.values()) > 0

    wait_for(is_told, "members tell how far they are")
    return found


def test_no_election_is_ever_needed(boot: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": boot})
    wanted = [TopicPartition(topic, 0), TopicPartition(topic, 9)]
    found = admin.elect_leaders(ElectionType.PREFERRED, wanted).result(PATIENCE_S)
    codes = {each.partition: found[each].code() for each in found}
    assert codes == {0: 84, 9: 3}


def test_partitions_are_where_they_are(world: World, wires: list[Wire], topic: str) -> None:
    everywhere = list(range(len(world.cluster.nodes)))

    def reassigned(version: int, *wishes: tuple[int, list[int] | None]) -> list[int]:
        parts = [{"partition_index": index, "replicas": nodes} for index, nodes in wishes]
        tree = {"timeout_ms": 1000, "topics": [{"name": topic, "partitions": parts}]}
        more = {"allow_replication_factor_change": True} if version else {}
        answer = wires[0].ask(45, version, tree | more)
        assert int(answer.error_code) == 0
        return [int(each.error_code) for each in answer.responses[0].partitions]

    wait_for(lambda: reassigned(0, (0, None)) == [85], "the topic is known here")
    assert reassigned(0, (0, everywhere), (0, everywhere[::-1]), (0, None)) == [0, 0, 85]
    assert reassigned(1, (0, everywhere[:1]), (0, [*everywhere, 9]), (7, None)) == [39, 39, 3]


def test_nothing_is_reassigned_and_nobody_wants_metrics(wires: list[Wire]) -> None:
    answer = wires[0].ask(46, 0, {"timeout_ms": 1000, "topics": None})
    assert (int(answer.error_code), answer.topics) == (0, ())
    told = wires[0].ask(71, 0, {"client_instance_id": None})
    assert (int(told.error_code), told.requested_metrics) == (0, ())
    assert told.client_instance_id is not None
    push = {
        "client_instance_id": told.client_instance_id,
        "subscription_id": 0,
        "terminating": False,
        "compression_type": 0,
        "metrics": b"x",
    }
    assert int(wires[0].ask(72, 0, push).error_code) == 117
    wanted = {"name": "metrics", "config_operation": 0, "value": "a"}
    resource = {"resource_type": 16, "resource_name": "x", "configs": [wanted]}
    (refused,) = wires[0].ask(44, 1, {"resources": [resource], "validate_only": False}).responses
    assert "telemetry is off" in refused.error_message


def test_what_has_settings(wires: list[Wire], topic: str) -> None:
    def listed(kinds: list[int]) -> set[tuple[str, int]]:
        answer = wires[0].ask(74, 1, {"resource_types": kinds})
        assert int(answer.error_code) == 0
        return {(each.resource_name, each.resource_type) for each in answer.config_resources}

    wait_for(lambda: (topic, 2) in listed([]), "the topic is known here")
    assert {kind for _, kind in listed([])} >= {2, 4}
    assert {kind for _, kind in listed([4])} == {4}
    assert listed([16]) == set()
    assert int(wires[0].ask(74, 1, {"resource_types": [8]}).error_code) == 35


def test_partitions_are_told_a_part_at_a_time(boot: str, wires: list[Wire], topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": boot})
    names = [f"{topic}-{letter}" for letter in "ab"]

    for made in admin.create_topics([NewTopic(name, 3) for name in names]).values():
        made.result(PATIENCE_S)
    asked = [{"name": name} for name in (*reversed(names), "nobody")]
    cursor: Any = None
    found: list[Any] = []
    while not found or cursor is not None:
        tree = {"topics": asked, "response_partition_limit": 2, "cursor": cursor}
        answer = wires[1].ask(75, 0, tree)
        for each in answer.topics:
            indexes = [partition.partition_index for partition in each.partitions]
            found.append((each.name, int(each.error_code), indexes))
        after = answer.next_cursor
        cursor = after and {
            "topic_name": after.topic_name,
            "partition_index": after.partition_index,
        }
    a, b = names
    assert found == [("nobody", 3, []), (a, 0, [0, 1]), (a, 0, [2]), (b, 0, [0]), (b, 0, [1, 2])]


def test_what_is_not_served_is_not_listed(wires: list[Wire]) -> None:
    """Share groups, groups of Streams, delegation tokens: clients see that by themselves."""
    asked = {"client_software_name": "test", "client_software_version": "1"}
    listed = {each.api_key for each in wires[0].ask(18, 3, asked).api_keys}
    assert not listed & {*range(38, 42), *range(76, 80), 88, 89}
    share = {"key_type": 2, "coordinator_keys": ["group:topic:0"]}
    (found,) = wires[0].ask(10, 6, share).coordinators
    assert (int(found.error_code), found.node_id) == (42, -1)
