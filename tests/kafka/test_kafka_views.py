"""What Kafka's tools may do with a view: look at it, and drop it; all else is refused by itself.
Lists are told whether there are views or not.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from samelog.admin.client import ask
from samelog.admin.requests import CreateView, GetUpgrade, SetSchema
from samelog.sequencer.levels import SUPPORTED
from tests.e2e.harness import World, wait_for
from tests.kafka.wire import Wire
from tests.patience import PATIENCE_S

NOT_HERE, INVALID_TOPIC, NOT_NEEDED = 6, 17, 84
SCHEMA = '{"format": "json", "columns": [{"name": "a", "type": "int64"}]}'


@pytest.fixture
def wires(world: World) -> Iterator[list[Wire]]:
    """A connection to every node."""
    found = [Wire(node.kafka) for node in world.cluster.nodes if node.kafka is not None]
    yield found
    for wire in found:
        wire.socket.close()


@pytest.fixture(params=[2, 3], ids=["in data groups", "on every node"])
def view(world: World, wires: list[Wire], boot: str, request: Any) -> str:
    """The name of one, on a topic with so many copies."""
    config, number = world.cluster.client_config(), uuid.uuid4().hex
    base, name = f"base_{number}", f"view_{number}"
    wait_for(lambda: ask(config, GetUpgrade()).level == SUPPORTED, "the cluster knows of views")
    admin = AdminClient({"bootstrap.servers": boot})
    admin.create_topics([NewTopic(base, 2, request.param)])[base].result(PATIENCE_S)
    wait_for(lambda: all(is_known(wire, base) for wire in wires), "every node knows its base")
    ask(config, SetSchema(base, SCHEMA, 0))
    ask(config, CreateView(name, f"SELECT a FROM {base} WHERE a > 1"))
    return name


def is_known(wire: Wire, topic: str) -> bool:
    answer = wire.ask(75, 0, {"topics": [], "response_partition_limit": 2000, "cursor": None})
    return topic in {each.name for each in answer.topics}


def test_a_view_is_neither_changed_nor_moved(wires: list[Wire], view: str) -> None:
    wait_for(lambda: all(is_known(wire, view) for wire in wires), "every node knows it")
    wire, told = wires[0], dict[str, int]()
    cut = [{"partition_index": 0, "offset": 1}]
    answer = wire.ask(21, 2, {"topics": [{"name": view, "partitions": cut}], "timeout_ms": 1000})
    assert int(answer.topics[0].partitions[0].error_code) in (NOT_HERE, INVALID_TOPIC)
    more = {"name": view, "count": 9, "assignments": None}
    answer = wire.ask(37, 3, {"topics": [more], "timeout_ms": 1000, "validate_only": False})
    told["more"] = answer.results[0].error_code
    setting = {"name": "segment.bytes", "config_operation": 0, "value": "70000"}
    resource = {"resource_type": 2, "resource_name": view, "configs": [setting]}
    answer = wire.ask(44, 1, {"resources": [resource], "validate_only": False})
    told["altered"] = answer.responses[0].error_code
    moved = [{"partition_index": 0, "replicas": [0, 1]}]
    answer = wire.ask(45, 0, {"timeout_ms": 1000, "topics": [{"name": view, "partitions": moved}]})
    told["moved"] = answer.responses[0].partitions[0].error_code
    assert {name: int(code) for name, code in told.items()} == dict.fromkeys(told, INVALID_TOPIC)


def test_lists_are_told_though_there_are_views(wires: list[Wire], view: str) -> None:
    wait_for(lambda: all(is_known(wire, view) for wire in wires), "every node knows it")
    for wire in wires:
        answer = wire.ask(46, 0, {"timeout_ms": 1000, "topics": None})
        assert int(answer.error_code) == 0
        named = [{"name": view, "partition_indexes": [0]}]
        assert wire.ask(46, 0, {"timeout_ms": 1000, "topics": named}).topics == ()
        (directory,) = wire.ask(35, 4, {"topics": None}).results
        assert view not in {each.name for each in directory.topics}
        wanted = {"election_type": 0, "timeout_ms": 5000}
        whole = wire.ask(43, 2, {**wanted, "topic_partitions": None})
        assert int(whole.error_code) == 0
        one = [{"topic": view, "partitions": [0]}]
        (elected,) = wire.ask(43, 2, {**wanted, "topic_partitions": one}).replica_election_results
        assert int(elected.partition_result[0].error_code) == NOT_NEEDED
