"""`default.replication.factor` is a setting of the cluster: what it means for topics that Kafka's
clients, and samelog's own, create without a number of copies.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import KafkaException, NewTopic, Producer

from samelog.admin.client import ask
from samelog.admin.placement_requests import AlterCluster, GetPlacement
from samelog.admin.requests import CreateTopic
from samelog.kafka.settings import GOAL
from samelog.placement.defaults import DEFAULT_COPIES
from tests.e2e.harness import World
from tests.kafka.test_placed_topics import partitions_of, there
from tests.kafka.wire import Wire
from tests.patience import PATIENCE_S

INVALID_CONFIG = 40


@pytest.fixture
def admin(boot: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": boot})


@pytest.fixture(autouse=True)
def as_shipped(world: World) -> Iterator[None]:
    """Other tests of this file begin without a default of their own."""
    yield
    ask(world.cluster.client_config(), AlterCluster(0))


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    return found


def set_default(admin: AdminClient, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(DEFAULT_COPIES, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def alter_cluster(wire: Wire, name: str, value: str) -> Any:
    """Change a setting of all nodes: the answer's only resource."""
    config = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 4, "resource_name": "", "configs": [config]}
    return wire.ask(44, 1, {"resources": [resource], "validate_only": False}).responses[0]


def of_cluster(wire: Wire) -> dict[str, str]:
    """The settings of all nodes."""
    resource = {"resource_type": 4, "resource_name": "", "configuration_keys": None}
    asked = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    return {each.name: each.value for each in wire.ask(32, 4, asked).results[0].configs}


def copies(admin: AdminClient, topic: str) -> set[int]:
    return {len(replicas) for _, replicas in partitions_of(admin, topic)}


def made_by_kafka(admin: AdminClient, copies: int = -1) -> str:
    name = f"t-{uuid.uuid4()}"
    made = admin.create_topics([NewTopic(name, 2, copies)], request_timeout=PATIENCE_S)
    made[name].result(PATIENCE_S)
    return name


def test_topics_without_a_number_get_the_default_whoever_creates_them(
    world: World, boot: str, admin: AdminClient
) -> None:
    everywhere = made_by_kafka(admin)
    assert GOAL not in described(admin, ResourceType.TOPIC, everywhere)
    set_default(admin, "2")
    by_number = made_by_kafka(admin, 1)
    names = [made_by_kafka(admin)]
    config = world.cluster.client_config()
    native = ask(config, CreateTopic(f"n-{uuid.uuid4()}", 2, {}))
    assert native.copies == 2
    assert any("losing one node loses no record, but stops writes" in w for w in native.warnings)
    names.append(native.name)
    names.append(f"published-{uuid.uuid4()}")
    with world.publisher(f"p-{uuid.uuid4()}", names[-1]) as publisher:
        publisher.append(b"x")
        publisher.wait_merged(PATIENCE_S)
    names.append(f"produced-{uuid.uuid4()}")
    producer = Producer({"bootstrap.servers": boot, "acks": "all"})
    producer.produce(names[-1], b"x")
    assert producer.flush(PATIENCE_S) == 0
    for name in names:
        assert copies(admin, name) == {2}, name
        goal = described(admin, ResourceType.TOPIC, name)[GOAL]
        assert (goal.value, goal.is_read_only) == ("2", True)
    set_default(admin, "1")
    assert {value for name in names for value in copies(admin, name)} == {2}, "they keep theirs"
    assert copies(admin, made_by_kafka(admin)) == copies(admin, by_number) == {1}
    assert copies(admin, everywhere) == {3}


def test_the_default_is_described_altered_and_taken_back(world: World, admin: AdminClient) -> None:
    shipped = described(admin, ResourceType.BROKER, "0")[DEFAULT_COPIES]
    assert (shipped.value, shipped.is_read_only) == ("3", False)
    assert ConfigSource(shipped.source) is ConfigSource.DEFAULT_CONFIG
    with Wire(there(world.cluster.nodes[1])) as wire:
        assert of_cluster(wire) == {}
        altered = alter_cluster(wire, DEFAULT_COPIES, "2")
        assert (altered.error_code, altered.error_message) == (0, None)
        assert of_cluster(wire) == {DEFAULT_COPIES: "2"}
        refused = alter_cluster(wire, "log.dirs", "/elsewhere")
        assert refused.error_code == INVALID_CONFIG
        assert "configuration file" in str(refused.error_message)
    found = described(admin, ResourceType.BROKER, "1")[DEFAULT_COPIES]
    assert found.value == "2"
    assert ConfigSource(found.source) is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert ask(world.cluster.client_config(), GetPlacement()).default_copies == 2
    set_default(admin, None)
    shipped = described(admin, ResourceType.BROKER, "2")[DEFAULT_COPIES]
    assert ConfigSource(shipped.source) is ConfigSource.DEFAULT_CONFIG
    assert ask(world.cluster.client_config(), GetPlacement()).default_copies == 0


def test_more_copies_than_nodes_are_refused_here_and_taken_with_a_warning_there(
    world: World, admin: AdminClient
) -> None:
    with pytest.raises(KafkaException, match="replication factor 4; there are 3 hosts"):
        made_by_kafka(admin, 4)
    made = ask(world.cluster.client_config(), CreateTopic(f"n-{uuid.uuid4()}", 1, {}, 4))
    assert made.copies == 4
    assert made.warnings == (
        "4 copies were asked for and 3 hosts can have one: more are made when others join",
    )


@pytest.mark.parametrize("value", ["0", "8", "many"])
def test_a_default_that_cannot_be_is_refused(admin: AdminClient, value: str) -> None:
    with pytest.raises(KafkaException, match="is not a number from 1 to 7"):
        set_default(admin, value)
