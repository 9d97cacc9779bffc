"""Produce (key 0), versions 0 to 13: requests in, record data as views of them; answers out.

Layouts: Kafka's ProduceRequest.json and ProduceResponse.json. Versions 0 to 2 are only read so that
they can be refused. Topics are names up to version 12, and ids (16 bytes) from 13 on.

Invariant: what is written is what `schemas` writes of the same answer (tests/kafka); record data
is never copied.
"""

from __future__ import annotations

import struct

import msgspec

from samelog.format.steps import StepWork
from samelog.kafka.codec.fetch import TopicKey
from samelog.kafka.codec.primitives import (
    ELEMENTS_AT_ONCE,
    ELEMENTS_UNLIMITED,
    ByteBuffer,
    MessageReader,
    MessageWriter,
)

FLEXIBLE_FROM = 9
IDS_FROM = 13
_REQUEST = struct.Struct(">hi")
_PARTITION_0 = struct.Struct(">ihq")
_PARTITION_2 = struct.Struct(">ihqq")
_PARTITION_5 = struct.Struct(">ihqqq")


class ProducePartition(msgspec.Struct, frozen=True):
    """Records for one partition; None: the client sent null."""

    partition: int
    records: memoryview | None


class ProduceRequest(msgspec.Struct, frozen=True):
    """Records for any number of partitions. `acks`: 0, 1, or -1 for all."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[TopicKey, list[ProducePartition]]]


class ProducedPartition(msgspec.Struct, frozen=True):
    """What became of one partition's records. `append_ms` is -1 unless the log's own time counts;
    `bad_records` are the numbers of those that made the batch be refused, and why.
    """

    partition: int
    error: int
    base_offset: int = -1
    append_ms: int = -1
    log_start: int = -1
    message: str | None = None
    bad_records: tuple[tuple[int, str | None], ...] = ()


class ProduceResponse(msgspec.Struct, frozen=True):
    """What became of all of them. Implements api.KafkaResponse."""

    topics: list[tuple[TopicKey, list[ProducedPartition]]]

    def record_bytes(self) -> int:
        """None go back."""
        return 0

    def encode(self, key: int, version: int, throttle_ms: int) -> list[ByteBuffer]:
        """The body; `throttle_ms`: how long the client is to wait. Raises ManyElements."""
        writer = MessageWriter(flexible=version >= FLEXIBLE_FROM)
        writer.count(len(self.topics))
        for topic, partitions in self.topics:
            if isinstance(topic, bytes):
                writer.raw(topic)
            else:
                writer.nullable_string(topic)
            writer.count(len(partitions))
            for partition in partitions:
                _write_partition(writer, version, partition)
            writer.tags()
        if version >= 1:
            writer.int32(throttle_ms)
        writer.tags()
        return writer.drain()

    def encoding(self, key: int, version: int, throttle_ms: int) -> StepWork[list[ByteBuffer]]:
        """As `encode`, in steps, for any number of partitions."""
        is_flexible = version >= FLEXIBLE_FROM
        writer = MessageWriter(flexible=is_flexible, elements=ELEMENTS_UNLIMITED)
        writer.count(len(self.topics))
        for topic, partitions in self.topics:
            if isinstance(topic, bytes):
                writer.raw(topic)
            else:
                writer.nullable_string(topic)
            writer.count(len(partitions))
            for partition in partitions:
                _write_partition(writer, version, partition)
                yield
            writer.tags()
        if version >= 1:
            writer.int32(throttle_ms)
        writer.tags()
        return writer.drain()


def read_produce(version: int, body: memoryview) -> ProduceRequest:
    """A request. Raises MalformedRequest, ManyElements."""
    reader = MessageReader(body, flexible=version >= FLEXIBLE_FROM, elements=ELEMENTS_AT_ONCE)
    transactional_id = reader.nullable_string() if version >= 3 else None
    acks, timeout_ms = reader.fixed(_REQUEST)
    topics: list[tuple[TopicKey, list[ProducePartition]]] = []
    for _ in range(reader.count()):
        topic: TopicKey = reader.uuid() if version >= IDS_FROM else reader.string()
        partitions: list[ProducePartition] = []
        for _ in range(reader.count()):
            partitions.append(ProducePartition(reader.int32(), reader.nullable_bytes()))
            reader.skip_tags()
        topics.append((topic, partitions))
        reader.skip_tags()
    reader.skip_tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def reading_produce(version: int, reader: MessageReader) -> StepWork[ProduceRequest]:
    """As `read_produce`, in steps, for as many elements as `reader` takes."""
    transactional_id = reader.nullable_string() if version >= 3 else None
    acks, timeout_ms = reader.fixed(_REQUEST)
    topics: list[tuple[TopicKey, list[ProducePartition]]] = []
    for _ in range(reader.count()):
        topic: TopicKey = reader.uuid() if version >= IDS_FROM else reader.string()
        partitions: list[ProducePartition] = []
        for _ in range(reader.count()):
            partitions.append(ProducePartition(reader.int32(), reader.nullable_bytes()))
            reader.skip_tags()
            yield
        topics.append((topic, partitions))
        reader.skip_tags()
        yield
    reader.skip_tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _write_partition(writer: MessageWriter, version: int, part: ProducedPartition) -> None:
    if version >= 5:
        fixed = _PARTITION_5.pack(
            part.partition, part.error, part.base_offset, part.append_ms, part.log_start
        )
    elif version >= 2:
        fixed = _PARTITION_2.pack(part.partition, part.error, part.base_offset, part.append_ms)
    else:
        fixed = _PARTITION_0.pack(part.partition, part.error, part.base_offset)
    writer.raw(fixed)
    if version >= 8:
        writer.count(len(part.bad_records))
        for number, reason in part.bad_records:
            writer.int32(number)
            writer.nullable_string(reason)
            writer.tags()
        writer.nullable_string(part.message)
    writer.tags()
