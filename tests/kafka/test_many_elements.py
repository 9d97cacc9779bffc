"""Long requests are answered as short ones are, element by element; there may be as many elements
as the cluster has use for.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from samelog.config.tables.kafka import ClientQuota
from samelog.format.steps import finished
from samelog.kafka.any_broker import KafkaClient
from samelog.kafka.clients.quotas import Allowance
from samelog.kafka.codec import schemas
from samelog.kafka.codec.descriptions import structure_of
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import MalformedRequest, ManyElements
from samelog.kafka.codec.primitives import ELEMENTS_AT_ONCE, MessageReader
from samelog.kafka.codec.schemas import BODY_BYTES, PartitionError, TopicAnswers, TopicsResponse
from samelog.kafka.parts import JoinedResponse, Parts
from samelog.kafka.registry import APIS
from samelog.kafka.server.dispatch import ApiDispatcher
from samelog.sequencer.state.types import ELEMENTS_EACH, ELEMENTS_FEW
from tests.e2e.harness import World
from tests.kafka.wire import FETCH, METADATA, Wire, fetch_tree, request, request_bytes

MANY = 3 * ELEMENTS_AT_ONCE
LIST_OFFSETS, OFFSET_COMMIT, METADATA_VERSION = 2, 8, 12


@pytest.fixture
def wire(world: World) -> Iterator[Wire]:
    address = world.cluster.nodes[0].kafka
    assert address is not None
    with Wire(address) as found:
        yield found


def naming(names: list[str]) -> dict[str, Any]:
    """A Metadata request."""
    return {
        "topics": [{"name": name, "topic_id": None} for name in names],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }


# --- as short ones --------------------------------------------------------------------------------


def test_a_long_request_is_answered_element_by_element(wire: Wire, topic: str) -> None:
    names = [topic if number % 7 == 3 else f"none-{number}" for number in range(MANY)]
    tree = naming(names)
    answer = wire.ask(METADATA, METADATA_VERSION, tree)
    assert [each.name for each in answer.topics] == names
    assert [each.error_code for each in answer.topics] == [0 if n == topic else 3 for n in names]


def test_a_long_request_of_partitions_keeps_their_order(wire: Wire, topic: str) -> None:
    parts = [
        {"partition_index": n, "current_leader_epoch": -1, "timestamp": -1} for n in range(MANY)
    ]
    tree = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": parts}],
    }
    (found,) = wire.ask(LIST_OFFSETS, 7, tree).topics
    assert [each.partition_index for each in found.partitions] == list(range(MANY))
    assert [each.error_code for each in found.partitions] == [0] + [3] * (MANY - 1)


def test_a_long_fetch_finds_what_there_is(wire: Wire, topic: str) -> None:
    tree = fetch_tree(topic, 0, max_bytes=200)
    (asked,) = tree["topics"][0]["partitions"]
    tree["topics"][0]["partitions"] = [asked | {"partition": n} for n in range(MANY)]
    while True:
        (found,) = wire.ask(FETCH, 12, tree).responses
        assert [each.partition_index for each in found.partitions] == list(range(MANY))
        codes = [each.error_code for each in found.partitions]
        if codes[0] != 3:  # this node knows the topic
            break
    assert codes == [0] + [3] * (MANY - 1)


# --- as many as there is use for ------------------------------------------------------------------


def test_a_request_of_more_elements_than_exist_ends_its_connection(wire: Wire) -> None:
    many = ELEMENTS_FEW + ELEMENTS_EACH * 1_000
    wire.send(request(METADATA, METADATA_VERSION, naming(["t"] * many)))
    assert wire.is_closed()


def test_a_request_of_many_bytes_is_refused_before_it_is_read() -> None:
    frame = memoryview(request_bytes(METADATA, METADATA_VERSION, bytes(BODY_BYTES + 1)))[4:]
    client = KafkaClient("samelog://user/ann", "l", "h")
    with pytest.raises(MalformedRequest, match=f"at most {BODY_BYTES}"):
        ApiDispatcher(cast(Any, SimpleNamespace()), APIS).start(client, frame)


def test_elements_of_tagged_fields_count() -> None:
    """Else each element of a list could have as many again."""
    reader = MessageReader(b"\x05" + b"\x01\x00" * 5, flexible=True, elements=4)
    with pytest.raises(ManyElements):
        reader.skip_tags()


def test_a_hundred_elements_count_as_a_request() -> None:
    allowance = Allowance(ClientQuota(identity="a", request_rate=10), now=0.0)
    assert not allowance.charge(0.0, requests=10)
    assert allowance.charge(0.0, requests=30) == pytest.approx(3.0)


# --- steps and parts ------------------------------------------------------------------------------


def test_what_is_read_in_steps_is_what_is_read_at_once() -> None:
    """A short request of every API, by its description."""
    for api in APIS.values():
        structure = structure_of("request", api.key, api.last)
        body = memoryview(schemas.write_message(structure, _example(structure)))
        at_once = (api.read or _read(api.key))(api.last, body)
        reader = MessageReader(body, flexible=structure.is_flexible)
        in_steps = api.reading or _reading(api.key)
        assert finished(in_steps(api.last, reader)) == at_once, api.name
        assert reader.at == len(body)


def _read(key: int) -> Any:
    return lambda version, body: schemas.read_request(key, version, body)


def _reading(key: int) -> Any:
    return lambda version, reader: schemas.reading_request(key, version, reader)


def _example(structure: Any) -> dict[str, Any]:
    """Two elements in each list."""
    plain = {"string": "s", "bool": True, "bytes": b"b", "float64": 1.5, "error_code": 0}

    def value(field: Any) -> Any:
        one = plain.get(field.kind, None if field.kind == "uuid" else 1)
        one = one if field.structure is None else _example(field.structure)
        return [one, one] if field.is_array else one

    return {field.name: value(field) for field in structure.fields}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_parts_have_all_elements_in_order_and_join_to_one_response(size: int) -> None:
    parts = Parts(("topics", "partitions"), ("topics", "partitions"), size=size)
    counts = {"a": 3, "b": 0, "c": 11, "d": 1}
    asked = TopicsResponse([TopicAnswers(name, range(n)) for name, n in counts.items()])
    joined, found = JoinedResponse(parts), []
    for part in parts.cut(asked):
        answers = [
            (each.name, [PartitionError(number, ErrorCode.none) for number in each.partitions])
            for each in part.topics
        ]
        found += [(name, each.partition_index) for name, errors in answers for each in errors]
        assert sum(max(1, len(errors)) for _, errors in answers) <= size
        joined.add(TopicsResponse([TopicAnswers(*answer) for answer in answers]))
    assert found == [(name, number) for name, n in counts.items() for number in range(n)]
    told = joined.response()
    assert {each.name: len(each.partitions) for each in told.topics} == counts


def test_a_request_for_everything_is_one_part() -> None:
    asked = SimpleNamespace(topics=None)
    assert list(Parts(("topics",), ("topics",)).cut(asked)) == [asked]
