"""A real listener and hand-made bytes."""

from __future__ import annotations

import struct

import pytest

from samelog.kafka.apis import session
from samelog.kafka.registry import APIS
from tests.e2e.harness import World
from tests.kafka.wire import Wire, request, request_bytes, response

API_VERSIONS = 18
SOFTWARE = {"client_software_name": "test", "client_software_version": "1.0"}


@pytest.fixture
def wire(world: World) -> Wire:
    address = world.cluster.nodes[0].kafka
    assert address is not None
    return Wire(address)


def tree(version: int) -> dict[str, str]:
    return SOFTWARE if version >= 3 else {}


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_what_is_registered(wire: Wire, version: int) -> None:
    with wire:
        answer = wire.ask(API_VERSIONS, version, tree(version))
        assert answer.error_code == 0
        listed = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        assert listed == {api.key: (api.first, api.last) for api in APIS.values()}


@pytest.mark.parametrize(("version", "first"), [(0, 1), (3, 1), (4, 0)])
def test_older_java_clients_meet_no_feature_that_begins_with_0(version: int, first: int) -> None:
    """Those before 3.9 end at it: any producer, consumer or AdminClient."""
    (feature,) = session.list_of(APIS.values(), asked_by=version).supported_features
    assert (feature.min_version, feature.max_version) == (first, session.EPOCH_EACH)


def test_a_newer_api_versions_gets_the_list_in_version_0(wire: Wire) -> None:
    with wire:
        wire.send(struct.pack(">ihhih", 10 + 5, API_VERSIONS, 77, 9, -1) + b"xxxxx")
        answer = response(API_VERSIONS, 0, wire.receive())
        assert answer.error_code == 35
        assert API_VERSIONS in {key.api_key for key in answer.api_keys}
        assert wire.ask(API_VERSIONS, 3, SOFTWARE).error_code == 0


def test_a_software_name_out_of_the_grammar_is_an_invalid_request(wire: Wire) -> None:
    with wire:
        bad = {"client_software_name": "a b", "client_software_version": "1"}
        assert wire.ask(API_VERSIONS, 3, bad).error_code == 42


def test_many_requests_at_once_are_answered_in_order(wire: Wire) -> None:
    with wire:
        wire.send(
            b"".join(request(API_VERSIONS, n % 5, tree(n % 5), correlation=n) for n in range(500))
        )
        got = [int.from_bytes(wire.receive()[:4], "big") for _ in range(500)]
        assert got == list(range(500))


@pytest.mark.parametrize(
    "data",
    [
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\0\0\0\0",
        b"\0\0\0\3abc",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, API_VERSIONS, 3, 1, 500),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        request_bytes(API_VERSIONS, 3, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_what_is_no_request_closes_the_connection(wire: Wire, world: World, data: bytes) -> None:
    with wire:
        wire.send(data)
        assert wire.is_closed()
    node = world.cluster.nodes[0]
    assert node.kafka is not None
    with Wire(node.kafka) as other:
        assert other.ask(API_VERSIONS, 0, {}).error_code == 0


def test_unknown_tagged_fields_are_skipped(wire: Wire) -> None:
    with wire:
        body = b"\x05test\x041.0" + b"\x01\x63\x03abc"
        wire.send(request_bytes(API_VERSIONS, 3, body))
        assert response(API_VERSIONS, 3, wire.receive()).error_code == 0


def test_bytes_behind_a_request_are_passed_over(wire: Wire) -> None:
    with wire:
        wire.send(request_bytes(API_VERSIONS, 0, b"left over"))
        assert response(API_VERSIONS, 0, wire.receive()).error_code == 0


def test_client_toml_names_the_listeners(world: World) -> None:
    names = world.cluster.client_config().kafka_bootstrap.split(",")
    assert len(names) == 3
    with open(world.cluster.client_file, encoding="utf-8") as file:
        assert f'kafka_bootstrap = "{",".join(names)}"' in file.read()
