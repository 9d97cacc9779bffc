"""Reading and writing messages by their descriptions; unknown tagged fields."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.kafka.apis.metadata import MetadataResponse, MetadataResponseTopic
from samelog.kafka.codec import schemas
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import InvalidResponse, MalformedRequest
from samelog.kafka.codec.framing import RequestHeader, read_client_id, read_header, response_header
from samelog.kafka.codec.primitives import MessageReader, MessageWriter
from samelog.kafka.registry import ALL, APIS

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
    return b"".join(map(bytes, writer.drain()))


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
    tree |= {"max_wait_ms": 1, "min_bytes": 1, "topics": [], "forgotten_topics_data": []}
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
    assert read_header(frame) == RequestHeader(3, 12, 42)
    client, at = read_client_id(frame, flexible=True)
    assert (client, bytes(frame[at:])) == ("ab", b"B")
    assert read_client_id(memoryview(bytes.fromhex("0003 0001 0000002a ffff")), flexible=False) == (
        "",
        10,
    )
    assert response_header(read_header(frame), flexible=True) == b"\0\0\0\x2a\0"
    assert response_header(RequestHeader(18, 12, 42), flexible=True) == b"\0\0\0\x2a"


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


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (0, 3, "ffff 0001 00000001 ffffffff"),
        (0, 9, "00 0001 00000001 00 00"),
        (1, 12, "ffffffff 00000000 00000000 00000000 00 00000000 00000000 00"),
        (2, 1, "ffffffff ffffffff"),
        (2, 1, "ffffffff 00000001 0001 61 ffffffff"),
        (8, 8, "02 61 00000000 01 00 00 00"),
        (61, 0, "00 00"),
        (61, 0, "02 02 61 00 00 00"),
    ],
)
def test_null_is_not_read_where_kafka_forbids_it(key: int, version: int, body: str) -> None:
    """Nor handed to a handler, which would fail of it."""
    read = APIS[key].read or partial(schemas.read_request, key)
    with pytest.raises(MalformedRequest, match="an array claims -1 elements"):
        read(version, memoryview(bytes.fromhex(body)))


def test_null_is_read_where_kafka_allows_it() -> None:
    assert schemas.read_request(3, 1, memoryview(b"\xff\xff\xff\xff")).topics is None


# --- responses ------------------------------------------------------------------------------------


class Part(schemas.Entity, frozen=True):
    eror_code: ErrorCode = ErrorCode.none
    name: str = "t"
    topic_id: UUID | None = None


class Misspelt(schemas.ResponseBody, frozen=True):
    brokers: tuple[Part, ...] = ()
    topics: tuple[Part, ...] = (Part(),)


MODULES = {api.key: api.handle.__module__ for api in ALL}
"""Where each API is; APIS has other handlers for changes, which are written down."""


def responses() -> list[tuple[int, int, type[schemas.ResponseBody]]]:
    """(key, version, type) of all responses that are written by Kafka's descriptions."""
    found = []
    for api in APIS.values():
        module = import_module(MODULES[api.key])
        name = "AlterConfigsResponse" if api.name == "IncrementalAlterConfigs" else None
        made = getattr(module, name or f"{api.name}Response")
        if issubclass(get_origin(made) or made, schemas.ResponseBody):
            found += [(api.key, version, made) for version in range(api.first, api.last + 1)]
    return found


IDS_FROM = {8: 10, 9: 10}
"""From which version on topics are named by their ids, which is another type in the same place."""


def filled(type_: Any, part: Any = None, *, by_id: bool = False) -> Any:
    """A value of a type in which everything is there; `part`: what its type variable stands for;
    `by_id`: of several types the last.
    """
    origin, arguments = get_origin(type_), get_args(type_)
    fill = partial(filled, by_id=by_id)
    if isinstance(type_, TypeVar):
        return fill(part)
    if isinstance(origin, type) and issubclass(origin, schemas.Entity):
        return fill(origin, part if isinstance(arguments[0], TypeVar) else arguments[0])
    if origin in (UnionType, Union):
        return fill([each for each in arguments if each is not NoneType][-by_id], part)
    if origin is Sequence:
        return (fill(arguments[0], part),)
    if issubclass(type_, schemas.Entity):
        hints = get_type_hints(type_)
        return type_(**{name: fill(hints[name], part) for name in type_.__struct_fields__})
    if issubclass(type_, IntEnum):
        return next(iter(type_))
    return UUID(int=5) if type_ is UUID else type_(1) if type_ is not bytes else b"1"


@pytest.mark.parametrize(("key", "version", "made"), responses())
def test_every_response_fits_kafkas_description_in_every_version(
    key: int, version: int, made: type[schemas.ResponseBody]
) -> None:
    response = filled(made, by_id=version >= IDS_FROM.get(key, version + 1))
    (body,) = response.encode(key, version, 7)
    read = schemas.read_response(key, version, bytes(body))
    throttled = getattr(read, "throttle_time_ms", None)
    assert throttled is None or throttled == 7


def test_a_field_that_no_version_has_is_not_answered_as_success() -> None:
    for version in (1, 12):
        with pytest.raises(InvalidResponse, match="MetadataResponseTopic has no eror_code"):
            schemas.write_response(3, version, Misspelt())
    with pytest.raises(InvalidResponse, match="HeartbeatRequest has no grup_id"):
        schemas.write_request(12, 0, {"grup_id": "g", "generation_id": 1, "member_id": "m"})


def test_a_field_of_another_version_is_left_out() -> None:
    topic = MetadataResponseTopic("t", UUID(int=1))
    response = MetadataResponse([], "c", 1, [topic], 0)
    read = schemas.read_response(3, 0, schemas.write_response(3, 0, response))
    assert not hasattr(read, "cluster_id")
    assert not hasattr(read.topics[0], "topic_id")


@pytest.mark.parametrize(
    "response",
    [
        MetadataResponse(cast(Any, None), "c", 1, [], 0),
        MetadataResponse([], "c", 1, [MetadataResponseTopic(None, None)], 0),
    ],
)
def test_null_is_not_written_where_kafka_forbids_it(response: MetadataResponse) -> None:
    with pytest.raises(InvalidResponse, match="may not be null"):
        schemas.write_response(3, 5, response)


def test_null_is_written_where_a_version_allows_it() -> None:
    response = MetadataResponse([], "c", 1, [MetadataResponseTopic(None, UUID(int=1))], 0)
    read = schemas.read_response(3, 12, schemas.write_response(3, 12, response))
    assert read.topics[0].name is None
