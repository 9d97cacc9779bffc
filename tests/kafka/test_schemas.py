"""Reading and writing messages by their descriptions; unknown tagged fields."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema

from samelog.kafka.codec import schemas
from samelog.kafka.codec.errors import MalformedRequest
from samelog.kafka.codec.headers import read_client_id, read_header, response_header
from samelog.kafka.codec.primitives import MessageReader, MessageWriter
from samelog.kafka.registry import APIS

OWN_CODECS = (0, 1)
VERSIONS = [
    (api.key, version)
    for api in APIS.values()
    if api.key not in OWN_CODECS
    for version in range(api.first, api.last + 1)
]


NO_RIGHTS = {"include_topic_authorized_operations": False}


def with_tag(tag: int, data: bytes) -> bytes:
    writer = MessageWriter(flexible=True)
    writer.tags([(tag, data)])
    return b"".join(map(bytes, writer.take()))


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_flexible_versions_are_declared_as_kafka_does(key: int, version: int) -> None:
    schema = load_request_schema(key, version)
    assert APIS[key].is_flexible(version) == schema.__flexible__


@given(data=st.data(), body=st.binary(max_size=200))
def test_any_bytes_are_a_request_or_refused(data: st.DataObject, body: bytes) -> None:
    key, version = data.draw(st.sampled_from(VERSIONS))
    with suppress(MalformedRequest):
        schemas.read_request(key, version, memoryview(body))


def test_unknown_tagged_fields_are_skipped_at_every_level() -> None:
    tree = {"topics": [{"topic_id": None, "name": "t"}], "allow_auto_topic_creation": True}
    body = schemas.write_request(3, 12, tree | NO_RIGHTS)
    at = body.index(b"\x02t") + 2
    assert body[at] == body[-1] == 0
    tagged = body[:at] + with_tag(7, b"abc") + body[at + 1 : -1] + with_tag(99, b"")
    read = schemas.read_request(3, 12, memoryview(tagged))
    assert read == schemas.read_request(3, 12, memoryview(body))


def test_known_tagged_fields_survive_unknown_ones() -> None:
    tree: dict[str, Any] = {"replica_state": {"replica_id": 5, "replica_epoch": 6}}
    tree |= {"max_wait": 1, "min_bytes": 1, "topics": [], "forgotten_topics_data": []}
    body = schemas.write_request(1, 15, tree)
    count = body.rindex(b"\x01\x01")
    tagged = body[:count] + b"\x02" + body[count + 1 :] + b"\x63\x02zz"
    read = schemas.read_request(1, 15, memoryview(tagged))
    assert read.replica_state.replica_id == 5


@given(body=st.binary(max_size=60))
def test_any_bytes_are_a_header_or_refused(body: bytes) -> None:
    for flexible in (False, True):
        with suppress(MalformedRequest):
            read_header(memoryview(body))
            read_client_id(memoryview(body), flexible=flexible)


def test_header_versions() -> None:
    frame = memoryview(bytes.fromhex("0003 000c 0000002a 0002 6162") + with_tag(3, b"xyz") + b"B")
    assert read_header(frame) == (3, 12, 42)
    client, at = read_client_id(frame, flexible=True)
    assert (client, bytes(frame[at:])) == ("ab", b"B")
    assert read_client_id(memoryview(bytes.fromhex("0003 0001 0000002a ffff")), flexible=False) == (
        "",
        10,
    )
    assert response_header(read_header(frame), flexible=True) == b"\0\0\0\x2a\0"
    assert response_header(read_header(frame)._replace(key=18), flexible=True) == b"\0\0\0\x2a"


@given(data=st.binary(max_size=30), flexible=st.booleans())
def test_primitive_reader_is_bounded(data: bytes, flexible: bool) -> None:
    for method in ("int64", "uuid", "nullable_string", "nullable_bytes", "count", "tags", "string"):
        reader = MessageReader(data, flexible=flexible)
        try:
            value = getattr(reader, method)()
        except MalformedRequest:
            continue
        assert reader.at <= len(data)
        if method == "count":
            assert value <= len(data)


@pytest.mark.parametrize("count", [0x7F80FF80, 100_001, 5])
def test_a_claimed_number_of_elements_sets_no_memory_aside(count: int) -> None:
    with pytest.raises(MalformedRequest, match="an array claims"):
        schemas.read_request(3, 5, memoryview(count.to_bytes(4, "big")))
    many = (200_000).to_bytes(4, "big") + bytes(400_001)
    with pytest.raises(MalformedRequest, match="an array claims 200000 elements"):
        schemas.read_request(3, 5, memoryview(many))


def test_a_long_request_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="at most 2097152"):
        schemas.read_request(3, 5, memoryview(bytes(3 << 20)))
