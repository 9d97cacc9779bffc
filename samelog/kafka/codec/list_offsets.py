"""ListOffsets (key 2), versions 1 to 10: requests in, answers out.

Layouts: Kafka's ListOffsetsRequest.json and ListOffsetsResponse.json. Some clients ask before each
of their polls.

Invariant: what is written is what `schemas` writes of the same answer (tests/kafka).
"""

from __future__ import annotations

import struct

import msgspec

from samelog.format.steps import StepWork, finished
from samelog.kafka.codec.primitives import (
    ELEMENTS_AT_ONCE,
    ELEMENTS_UNLIMITED,
    ByteBuffer,
    MessageReader,
    MessageWriter,
)

FLEXIBLE_FROM = 6
_ASKED_1 = struct.Struct(">iq")
_ASKED_4 = struct.Struct(">iiq")
_FOUND_1 = struct.Struct(">ihqq")
_FOUND_4 = struct.Struct(">ihqqi")


class OffsetWanted(msgspec.Struct, frozen=True):
    """What is asked of one partition. `epoch`: the leader epoch that the client knows of; -1: none.
    A negative `timestamp` asks for an end of the log.
    """

    partition: int
    epoch: int
    timestamp: int


class ListOffsetsRequest(msgspec.Struct, frozen=True):
    """A decoded request."""

    topics: list[tuple[str, list[OffsetWanted]]]
    isolation: int = 0


class OffsetFound(msgspec.Struct, frozen=True):
    """An offset, with its record's time and epoch where they were asked for or are known."""

    partition: int
    error: int = 0
    timestamp: int = -1
    offset: int = -1
    epoch: int = -1


class ListOffsetsResponse(msgspec.Struct, frozen=True):
    """An answer. Implements api.KafkaResponse."""

    topics: list[tuple[str, list[OffsetFound]]]

    def record_bytes(self) -> int:
        """It has no records."""
        return 0

    def encode(self, key: int, version: int, throttle_ms: int) -> list[ByteBuffer]:
        """The body; `throttle_ms`: how long the client is to wait. Raises ManyElements."""
        writer = MessageWriter(flexible=version >= FLEXIBLE_FROM)
        return finished(self._encoding(writer, version, throttle_ms))

    def encoding(self, key: int, version: int, throttle_ms: int) -> StepWork[list[ByteBuffer]]:
        """As `encode`, in steps, for any number of partitions."""
        is_flexible = version >= FLEXIBLE_FROM
        writer = MessageWriter(flexible=is_flexible, elements=ELEMENTS_UNLIMITED)
        return self._encoding(writer, version, throttle_ms)

    def _encoding(
        self, writer: MessageWriter, version: int, throttle_ms: int
    ) -> StepWork[list[ByteBuffer]]:
        if version >= 2:
            writer.int32(throttle_ms)
        writer.count(len(self.topics))
        for name, partitions in self.topics:
            writer.nullable_string(name)
            writer.count(len(partitions))
            for part in partitions:
                fixed = part.partition, part.error, part.timestamp, part.offset
                if version >= 4:
                    writer.raw(_FOUND_4.pack(*fixed, part.epoch))
                else:
                    writer.raw(_FOUND_1.pack(*fixed))
                writer.tags()
                yield
            writer.tags()
        writer.tags()
        return writer.drain()


def read_list_offsets(version: int, body: memoryview) -> ListOffsetsRequest:
    """A request. Raises MalformedRequest, ManyElements."""
    reader = MessageReader(body, flexible=version >= FLEXIBLE_FROM, elements=ELEMENTS_AT_ONCE)
    return finished(reading_list_offsets(version, reader))


def reading_list_offsets(version: int, reader: MessageReader) -> StepWork[ListOffsetsRequest]:
    """As `read_list_offsets`, in steps, for as many elements as `reader` takes."""
    reader.int32()  # of a replica
    isolation = reader.int8() if version >= 2 else 0
    topics: list[tuple[str, list[OffsetWanted]]] = []
    for _ in range(reader.count()):
        name, partitions = reader.string(), []
        for _ in range(reader.count()):
            partitions.append(_read_partition(reader, version))
            reader.skip_tags()
            yield
        topics.append((name, partitions))
        reader.skip_tags()
        yield
    if version >= 10:
        reader.int32()  # how long the client waits for a remote log
    reader.skip_tags()
    return ListOffsetsRequest(topics, isolation)


def _read_partition(reader: MessageReader, version: int) -> OffsetWanted:
    if version >= 4:
        index, epoch, timestamp = reader.fixed(_ASKED_4)
        return OffsetWanted(index, epoch, timestamp)
    index, timestamp = reader.fixed(_ASKED_1)
    return OffsetWanted(index, -1, timestamp)
