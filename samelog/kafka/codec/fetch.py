"""Fetch (key 1), versions 4 to 18: requests in, answers out, records as the buffers they came in.

Layouts: Kafka's FetchRequest.json and FetchResponse.json. Topics are names up to version 12, and
ids (16 bytes) from 13 on; fields that consumers do not need (replicas' state) are read over.

Invariant: what is written is what `schemas` writes of the same answer (tests/kafka), but record
data is never copied.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from samelog.format.steps import StepWork
from samelog.format.transactions import Aborted
from samelog.kafka.codec.primitives import (
    ELEMENTS_AT_ONCE,
    ELEMENTS_UNLIMITED,
    ByteBuffer,
    MessageReader,
    MessageWriter,
)

FLEXIBLE_FROM = 12
IDS_FROM = 13
_LIMITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_ASKED_4 = struct.Struct(">iqi")
_ASKED_5 = struct.Struct(">iqqi")
_ASKED_9 = struct.Struct(">iiqqi")
_ASKED_12 = struct.Struct(">iiqiqi")
_PARTITION_4 = struct.Struct(">ihqq")
_PARTITION_5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
TopicKey = str | bytes
"""A name, or an id."""


class FetchPartition(msgspec.Struct, frozen=True):
    """What a fetch asks of one partition."""

    partition: int
    epoch: int
    """The leader epoch that the client knows of; -1: none."""
    offset: int
    max_bytes: int


class FetchRequest(msgspec.Struct, frozen=True):
    """A decoded Fetch request."""

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


class FetchedPartition(msgspec.Struct, frozen=True):
    """What is answered of one partition. All offsets are -1 with most errors. `preferred`: the node
    that the client had better read it from, -1 if this is the one. For who reads what is committed:
    `stable`, the last stable offset, and `aborted`, what is aborted of the records.
    """

    partition: int
    error: int
    high_watermark: int = -1
    log_start: int = -1
    records: Sequence[bytes | memoryview] = ()
    preferred: int = -1
    stable: int = -1
    aborted: Sequence[Aborted] = ()


class FetchResponse(msgspec.Struct, frozen=True):
    """An answer; `has_aborted`: lists of aborted transactions are there. Implements
    api.KafkaResponse.
    """

    error: int
    topics: list[tuple[TopicKey, list[FetchedPartition]]]
    has_aborted: bool = False
    session_id: int = 0

    def record_bytes(self) -> int:
        """How many bytes of records are in it."""
        size = 0
        for _, partitions in self.topics:
            for partition in partitions:
                size += sum(map(len, partition.records))
        return size

    def encode(self, key: int, version: int, throttle_ms: int) -> list[ByteBuffer]:
        """The body; `throttle_ms`: how long the client is to wait. Raises ManyElements."""
        writer = MessageWriter(flexible=version >= FLEXIBLE_FROM)
        writer.int32(throttle_ms)
        if version >= 7:
            writer.int16(self.error)
            writer.int32(self.session_id)
        writer.count(len(self.topics))
        for topic, partitions in self.topics:
            if isinstance(topic, bytes):
                writer.raw(topic)
            else:
                writer.nullable_string(topic)
            writer.count(len(partitions))
            for partition in partitions:
                _write_partition(writer, version, partition, has_aborted=self.has_aborted)
            writer.tags()
        writer.tags()
        return writer.drain()

    def encoding(self, key: int, version: int, throttle_ms: int) -> StepWork[list[ByteBuffer]]:
        """As `encode`, in steps, for any number of partitions."""
        is_flexible = version >= FLEXIBLE_FROM
        writer = MessageWriter(flexible=is_flexible, elements=ELEMENTS_UNLIMITED)
        writer.int32(throttle_ms)
        if version >= 7:
            writer.int16(self.error)
            writer.int32(self.session_id)
        writer.count(len(self.topics))
        for topic, partitions in self.topics:
            if isinstance(topic, bytes):
                writer.raw(topic)
            else:
                writer.nullable_string(topic)
            writer.count(len(partitions))
            for partition in partitions:
                _write_partition(writer, version, partition, has_aborted=self.has_aborted)
                yield
            writer.tags()
        writer.tags()
        return writer.drain()


def read_fetch(version: int, body: memoryview) -> FetchRequest:
    """A request. Raises MalformedRequest, ManyElements."""
    reader = MessageReader(body, flexible=version >= FLEXIBLE_FROM, elements=ELEMENTS_AT_ONCE)
    if version < 15:
        reader.int32()  # of a replica
    wait_ms, min_bytes, max_bytes, isolation = reader.fixed(_LIMITS)
    session_id, session_epoch = reader.fixed(_SESSION) if version >= 7 else (0, -1)
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    for _ in range(reader.count()):
        key, partitions = _read_key(reader, version), []
        for _ in range(reader.count()):
            partitions.append(_read_partition(reader, version))
            reader.skip_tags()
        topics.append((key, partitions))
        reader.skip_tags()
    forgotten = _read_forgotten(reader, version) if version >= 7 else []
    rack = reader.string() if version >= 11 else ""
    reader.skip_tags()
    return FetchRequest(
        wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack,
    )


def reading_fetch(version: int, reader: MessageReader) -> StepWork[FetchRequest]:
    """As `read_fetch`, in steps, for as many elements as `reader` takes."""
    if version < 15:
        reader.int32()  # of a replica
    wait_ms, min_bytes, max_bytes, isolation = reader.fixed(_LIMITS)
    session_id, session_epoch = reader.fixed(_SESSION) if version >= 7 else (0, -1)
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    for _ in range(reader.count()):
        key, partitions = _read_key(reader, version), list[FetchPartition]()
        for _ in range(reader.count()):
            partitions.append(_read_partition(reader, version))
            reader.skip_tags()
            yield
        topics.append((key, partitions))
        reader.skip_tags()
        yield
    forgotten: list[tuple[TopicKey, list[int]]] = []
    for _ in range(reader.count() if version >= 7 else 0):
        key, indexes = _read_key(reader, version), list[int]()
        for _ in range(reader.count()):
            indexes.append(reader.int32())
            yield
        forgotten.append((key, indexes))
        reader.skip_tags()
        yield
    rack = reader.string() if version >= 11 else ""
    reader.skip_tags()
    return FetchRequest(
        wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack,
    )


def _read_partition(reader: MessageReader, version: int) -> FetchPartition:
    """The epoch of what was fetched last, and a replica's log start offset, are read over."""
    if version >= 12:
        index, epoch, offset, _, _, max_bytes = reader.fixed(_ASKED_12)
    elif version >= 9:
        index, epoch, offset, _, max_bytes = reader.fixed(_ASKED_9)
    elif version >= 5:
        index, offset, _, max_bytes = reader.fixed(_ASKED_5)
        epoch = -1
    else:
        index, offset, max_bytes = reader.fixed(_ASKED_4)
        epoch = -1
    return FetchPartition(index, epoch, offset, max_bytes)


def _read_key(reader: MessageReader, version: int) -> TopicKey:
    return reader.uuid() if version >= IDS_FROM else reader.string()


def _read_forgotten(reader: MessageReader, version: int) -> list[tuple[TopicKey, list[int]]]:
    """The partitions that a fetch session shall forget."""
    topics: list[tuple[TopicKey, list[int]]] = []
    for _ in range(reader.count()):
        key = _read_key(reader, version)
        topics.append((key, [reader.int32() for _ in range(reader.count())]))
        reader.skip_tags()
    return topics


def _write_partition(
    writer: MessageWriter, version: int, part: FetchedPartition, *, has_aborted: bool
) -> None:
    stable = part.stable if part.stable >= 0 else part.high_watermark
    if version >= 5:
        fixed = _PARTITION_5.pack(
            part.partition, part.error, part.high_watermark, stable, part.log_start
        )
    else:
        fixed = _PARTITION_4.pack(part.partition, part.error, part.high_watermark, stable)
    writer.raw(fixed)
    writer.count(len(part.aborted) if has_aborted else -1)
    for each in part.aborted:
        writer.raw(_ABORTED.pack(each.producer_id, each.first_offset))
        writer.tags()
    if version >= 11:
        writer.int32(part.preferred)
    writer.buffers(part.records)
    writer.tags()
