"""The codecs of Produce, Fetch and ListOffsets that are ours, against what is written by
Kafka's descriptions.
"""

from __future__ import annotations

import random
import uuid
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from samelog.kafka.codec import schemas
from samelog.kafka.codec.descriptions import structure_of
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import MalformedRequest
from samelog.kafka.codec.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    read_fetch,
)
from samelog.kafka.codec.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFound,
    OffsetWanted,
    read_list_offsets,
)
from samelog.kafka.codec.produce import (
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    read_produce,
)
from tests.examples import at_most

FETCH, PRODUCE, LIST_OFFSETS = 1, 0, 2
FETCH_VERSIONS = range(4, 19)
PRODUCE_VERSIONS = range(3, 14)
LIST_OFFSETS_VERSIONS = range(1, 11)

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text("abc.-_é", min_size=1, max_size=9)
codes = st.sampled_from([0, 1, 3, 6, 29])
ids = st.binary(min_size=16, max_size=16).filter(any)


def joined(parts: list[Any]) -> bytes:
    return b"".join(bytes(part) for part in parts)


def key_of(version: int, name: str) -> str | bytes:
    """What a topic is called in Produce."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, name).bytes if version >= 13 else name


def named(name: str) -> dict[str, Any]:
    """Both ways; a version has one of them."""
    return {"name": name, "topic_id": uuid.uuid5(uuid.NAMESPACE_DNS, name)}


def described(key: int, version: int, tree: dict[str, Any]) -> bytes:
    return schemas.write_message(structure_of("response", key, version), tree)


@settings(max_examples=at_most(150))
@given(
    version=st.sampled_from(FETCH_VERSIONS),
    numbers=st.tuples(int32, int32, int32, st.integers(0, 1), int32, int32),
    partitions=st.lists(st.tuples(int32, int32, int64, int32), max_size=3),
    keys=st.lists(st.tuples(names, ids), max_size=3),
)
def test_fetch_requests_are_read_as_described(
    version: int, numbers: tuple[int, ...], partitions: list[tuple[int, ...]], keys: Any
) -> None:
    wait, least, most, isolation, session, epoch = numbers
    topics = []
    for name, topic_id in keys:
        listed = [
            {
                "partition": index,
                "current_leader_epoch": leader_epoch,
                "fetch_offset": offset,
                "last_fetched_epoch": 3,
                "log_start_offset": 4,
                "partition_max_bytes": limit,
            }
            for index, leader_epoch, offset, limit in partitions
        ]
        key = {"topic": name, "topic_id": uuid.UUID(bytes=topic_id)}
        topics.append(key | {"partitions": listed})
    forgotten = [{"topic": "x", "topic_id": uuid.UUID(int=5), "partitions": [1, 2]}]
    tree = {
        "replica_id": -1,
        "max_wait_ms": wait,
        "min_bytes": least,
        "max_bytes": most,
        "isolation_level": isolation,
        "session_id": session,
        "session_epoch": epoch,
        "topics": topics,
        "forgotten_topics_data": forgotten,
        "rack_id": "r",
        "cluster_id": "c",
    }
    read = read_fetch(version, memoryview(schemas.write_request(FETCH, version, tree)))
    wanted = [FetchPartition(p[0], p[1] if version >= 9 else -1, p[2], p[3]) for p in partitions]
    by_id = version >= 13
    assert read == FetchRequest(
        wait,
        least,
        most,
        isolation,
        *((session, epoch) if version >= 7 else (0, -1)),
        [(topic_id if by_id else name, wanted) for name, topic_id in keys],
        [(uuid.UUID(int=5).bytes if by_id else "x", [1, 2])] if version >= 7 else [],
        "r" if version >= 11 else "",
    )


@settings(max_examples=at_most(150))
@given(
    version=st.sampled_from(FETCH_VERSIONS),
    head=st.tuples(codes, st.booleans(), int32),
    partitions=st.lists(st.tuples(int32, codes, int64, int64, st.binary(max_size=9)), max_size=3),
    keys=st.lists(st.tuples(names, ids), max_size=3),
)
def test_fetch_answers_are_what_is_described(
    version: int, head: tuple[int, bool, int], partitions: list[Any], keys: Any
) -> None:
    by_id = version >= 13
    error, aborted, session = head
    mine = FetchResponse(
        error,
        [
            (
                topic_id if by_id else name,
                [
                    FetchedPartition(
                        index, code, high, start, [data[:4], memoryview(data)[4:]], index // 2
                    )
                    for index, code, high, start, data in partitions
                ],
            )
            for name, topic_id in keys
        ],
        aborted,
        session,
    )
    theirs = [
        {
            "topic": name,
            "topic_id": uuid.UUID(bytes=topic_id),
            "partitions": [
                {
                    "partition_index": index,
                    "error_code": ErrorCode(code),
                    "high_watermark": high,
                    "last_stable_offset": high,
                    "log_start_offset": start,
                    "aborted_transactions": () if aborted else None,
                    "preferred_read_replica": index // 2,
                    "records": data,
                }
                for index, code, high, start, data in partitions
            ],
        }
        for name, topic_id in keys
    ]
    tree = {"throttle_time_ms": 77, "error_code": ErrorCode(error), "responses": theirs}
    tree |= {"session_id": session}
    assert joined(mine.encode(FETCH, version, 77)) == described(FETCH, version, tree)


@settings(max_examples=at_most(150))
@given(
    version=st.sampled_from(PRODUCE_VERSIONS),
    head=st.tuples(st.none() | names, st.sampled_from([-1, 0, 1]), int32),
    partitions=st.lists(st.tuples(int32, st.none() | st.binary(max_size=9)), max_size=3),
    topics=st.lists(names, max_size=3),
)
def test_produce_requests_are_read_as_described(
    version: int,
    head: tuple[str | None, int, int],
    partitions: list[tuple[int, bytes | None]],
    topics: list[str],
) -> None:
    transaction, acks, timeout = head
    listed = [{"index": index, "records": data} for index, data in partitions]
    tree = {
        "transactional_id": transaction,
        "acks": acks,
        "timeout_ms": timeout,
        "topic_data": [{**named(name), "partition_data": listed} for name in topics],
    }
    body = memoryview(schemas.write_request(PRODUCE, version, tree))
    read = read_produce(version, body)
    wanted = [
        ProducePartition(index, None if data is None else memoryview(data))
        for index, data in partitions
    ]
    assert read == ProduceRequest(*head, [(key_of(version, name), wanted) for name in topics])
    for _, found in read.topics:
        assert all(part.records is None or part.records.obj is body.obj for part in found)


@settings(max_examples=at_most(150))
@given(
    version=st.sampled_from(PRODUCE_VERSIONS),
    partitions=st.lists(
        st.tuples(int32, codes, int64, st.none() | st.integers(0, 1 << 40), int64, st.booleans()),
        max_size=3,
    ),
    topics=st.lists(names, max_size=3),
)
def test_produce_answers_are_what_is_described(
    version: int, partitions: list[Any], topics: list[str]
) -> None:
    bad = ((3, "no key"), (4, None))
    mine = [
        (
            key_of(version, name),
            [
                ProducedPartition(
                    index,
                    code,
                    base,
                    -1 if at is None else at,
                    start,
                    "why" if is_bad else None,
                    bad if is_bad else (),
                )
                for index, code, base, at, start, is_bad in partitions
            ],
        )
        for name in topics
    ]
    errors = [{"batch_index": i, "batch_index_error_message": text} for i, text in bad]
    theirs = [
        {
            **named(name),
            "partition_responses": [
                {
                    "index": index,
                    "error_code": ErrorCode(code),
                    "base_offset": base,
                    "log_append_time_ms": -1 if at is None else 0,
                    "log_start_offset": start,
                    "record_errors": errors if is_bad else [],
                    "error_message": "why" if is_bad else None,
                }
                for index, code, base, at, start, is_bad in partitions
            ],
        }
        for name in topics
    ]
    written = joined(
        ProduceResponse(
            [
                (name, [replace(part, append_ms=min(part.append_ms, 0)) for part in parts])
                for name, parts in mine
            ]
        ).encode(PRODUCE, version, 0)
    )
    tree = {"responses": theirs, "throttle_time_ms": 0}
    assert written == described(PRODUCE, version, tree)


@given(data=st.binary(max_size=200), version=st.integers(0, 18))
def test_any_bytes_are_read_or_refused(data: bytes, version: int) -> None:
    with suppress(MalformedRequest):
        read_fetch(max(version, 4), memoryview(data))
    with suppress(MalformedRequest):
        read_produce(min(version, 13), memoryview(data))


def test_damaged_requests_are_read_or_refused() -> None:
    rng = random.Random(3)
    tree = {
        "transactional_id": None,
        "acks": 1,
        "timeout_ms": 5,
        "topic_data": [{**named("topic"), "partition_data": [{"index": 0, "records": b"x" * 50}]}],
    }
    for version in PRODUCE_VERSIONS:
        whole = schemas.write_request(PRODUCE, version, tree)
        for _ in range(300):
            damaged = bytearray(whole)
            for _ in range(rng.randrange(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
            with suppress(MalformedRequest):
                read_produce(version, memoryview(bytes(damaged[: rng.randrange(len(damaged) + 1)])))


def test_old_produce_requests_can_be_answered() -> None:
    body = b"\0\1\0\0\0\5" + b"\0\0\0\1\0\1t" + b"\0\0\0\1" + b"\0\0\0\0" + b"\0\0\0\2ab"
    read = read_produce(0, memoryview(body))
    assert read.topics[0][0] == "t"
    answer = joined(ProduceResponse([("t", [ProducedPartition(0, 35)])]).encode(PRODUCE, 0, 0))
    assert answer.hex() == "0000000100017400000001000000000023" + "ff" * 8


@settings(max_examples=at_most(150))
@given(
    version=st.sampled_from(LIST_OFFSETS_VERSIONS),
    partitions=st.lists(st.tuples(int32, int32, int64), max_size=3),
    topics=st.lists(names, max_size=3),
)
def test_list_offsets_requests_are_read_as_described(
    version: int, partitions: list[tuple[int, int, int]], topics: list[str]
) -> None:
    listed = [
        {"partition_index": index, "current_leader_epoch": epoch, "timestamp": timestamp}
        for index, epoch, timestamp in partitions
    ]
    tree = {
        "replica_id": -1,
        "isolation_level": 1,
        "topics": [{"name": name, "partitions": listed} for name in topics],
        "timeout_ms": 7,
    }
    body = memoryview(schemas.write_request(LIST_OFFSETS, version, tree))
    wanted = [OffsetWanted(i, epoch if version >= 4 else -1, at) for i, epoch, at in partitions]
    found = read_list_offsets(version, body)
    isolation = 1 if version >= 2 else 0
    assert found == ListOffsetsRequest([(name, wanted) for name in topics], isolation)


@settings(max_examples=at_most(150))
@given(
    version=st.sampled_from(LIST_OFFSETS_VERSIONS),
    partitions=st.lists(st.tuples(int32, codes, int64, int64, int32), max_size=3),
    topics=st.lists(names, max_size=3),
)
def test_list_offsets_answers_are_what_is_described(
    version: int, partitions: list[tuple[int, int, int, int, int]], topics: list[str]
) -> None:
    mine = ListOffsetsResponse(
        [(name, [OffsetFound(*each) for each in partitions]) for name in topics]
    )
    theirs = [
        {
            "partition_index": index,
            "error_code": ErrorCode(code),
            "timestamp": timestamp,
            "offset": offset,
            "leader_epoch": epoch,
        }
        for index, code, timestamp, offset, epoch in partitions
    ]
    tree: dict[str, Any] = {"topics": [{"name": name, "partitions": theirs} for name in topics]}
    written = joined(mine.encode(LIST_OFFSETS, version, 77))
    assert written == described(LIST_OFFSETS, version, tree | {"throttle_time_ms": 77})
