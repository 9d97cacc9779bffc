"""Fetch (key 1), versions 4 to 17: requests in, answers out, records as the buffers they came in.

Layouts: Kafka's FetchRequest.json and FetchResponse.json. Topics are names up to version 12, and
ids (16 bytes) from 13 on; fields that consumers do not need (replicas' state) are read over.

Invariant: what is written is what the library writes of the same answer (tests/kafka), but record
data is never copied.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from samelog.kafka.codec.primitives import MessageReader, MessageWriter

if TYPE_CHECKING:
    from typing_extensions import Buffer

FLEXIBLE_FROM = 12
IDS_FROM = 13
_PARTITION_4 = struct.Struct(">ihqq")
_PARTITION_5 = struct.Struct(">ihqqq")
TopicKey = str | bytes
"""A name, or an id."""


class FetchPartition(NamedTuple):
    """What is wanted of one partition."""

    partition: int
    epoch: int
    """The leader epoch that the client knows of; -1: none."""
    offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    """What is wanted, and for how long it may take."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicKey, list[FetchPartition]]]
    forgotten: Sequence[tuple[TopicKey, Sequence[int]]] = ()
    """Partitions that a session is to do without from now on."""
    rack: str = ""
    """Where the client is; empty if it does not say."""


class FetchedPartition(NamedTuple):
    """What is answered of one partition. All offsets are -1 with most errors. `preferred`: the node
    that the client had better read it from, -1 if this is the one.
    """

    partition: int
    error: int
    high_watermark: int = -1
    log_start: int = -1
    records: Sequence[bytes | memoryview] = ()
    preferred: int = -1


class FetchResponse(NamedTuple):
    """An answer; `has_aborted`: the list of aborted transactions is there, and empty."""

    error: int
    topics: list[tuple[TopicKey, list[FetchedPartition]]]
    has_aborted: bool = False
    session_id: int = 0


def read_fetch(version: int, body: memoryview) -> FetchRequest:
    """A request. Raises MalformedRequest."""
    reader = MessageReader(body, flexible=version >= FLEXIBLE_FROM)
    if version < 15:
        reader.int32()  # of a replica
    max_wait, min_bytes, max_bytes = reader.int32(), reader.int32(), reader.int32()
    isolation = reader.int8()
    session_id, session_epoch = (reader.int32(), reader.int32()) if version >= 7 else (0, -1)
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    for _ in range(reader.count()):
        key = _read_key(reader, version)
        topics.append((key, [_read_partition(reader, version) for _ in range(reader.count())]))
        reader.tags()
    forgotten = _read_forgotten(reader, version) if version >= 7 else []
    rack = reader.string() if version >= 11 else ""
    reader.tags()
    session = session_id, session_epoch
    return FetchRequest(
        max_wait, min_bytes, max_bytes, isolation, *session, topics, forgotten, rack
    )


def _read_partition(reader: MessageReader, version: int) -> FetchPartition:
    index = reader.int32()
    epoch = reader.int32() if version >= 9 else -1
    offset = reader.int64()
    if version >= 12:
        reader.int32()  # the epoch of what was fetched last
    if version >= 5:
        reader.int64()  # a replica's log start offset
    max_bytes = reader.int32()
    reader.tags()
    return FetchPartition(index, epoch, offset, max_bytes)


def _read_key(reader: MessageReader, version: int) -> TopicKey:
    return reader.uuid() if version >= IDS_FROM else reader.string()


def _read_forgotten(reader: MessageReader, version: int) -> list[tuple[TopicKey, list[int]]]:
    """What a fetch session is to forget."""
    topics: list[tuple[TopicKey, list[int]]] = []
    for _ in range(reader.count()):
        key = _read_key(reader, version)
        topics.append((key, [reader.int32() for _ in range(reader.count())]))
        reader.tags()
    return topics


def write_fetch(version: int, answer: FetchResponse, throttle_ms: int = 0) -> list[Buffer]:
    """An answer's body; `throttle_ms`: how long the client is to wait."""
    writer = MessageWriter(flexible=version >= FLEXIBLE_FROM)
    writer.int32(throttle_ms)
    if version >= 7:
        writer.int16(answer.error)
        writer.int32(answer.session_id)
    writer.count(len(answer.topics))
    for key, partitions in answer.topics:
        if isinstance(key, bytes):
            writer.raw(key)
        else:
            writer.nullable_string(key)
        writer.count(len(partitions))
        for partition in partitions:
            _write_partition(writer, version, partition, 0 if answer.has_aborted else -1)
        writer.no_tags()
    writer.no_tags()
    return writer.take()


def _write_partition(
    writer: MessageWriter, version: int, part: FetchedPartition, aborted: int
) -> None:
    stable = part.high_watermark
    if version >= 5:
        fixed = _PARTITION_5.pack(
            part.partition, part.error, part.high_watermark, stable, part.log_start
        )
    else:
        fixed = _PARTITION_4.pack(part.partition, part.error, part.high_watermark, stable)
    writer.raw(fixed)
    writer.count(aborted)
    if version >= 11:
        writer.int32(part.preferred)
    writer.buffers(part.records)
    writer.no_tags()
