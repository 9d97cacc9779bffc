"""Offsets of logs: ListOffsets, OffsetForLeaderEpoch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import AnyCall, kafka_api
from samelog.kafka.apis.checks import (
    Readable,
    answer_each,
    answer_topics,
    catch_up,
    readable,
    until_executed,
)
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody, TopicsResponse
from samelog.store.merged.reader import record_since

ANSWER_S = 3.0
"""How long this may take to get what is committed."""
LATEST, EARLIEST, YOUNGEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


class ListOffsetsResponsePartition(Entity, frozen=True):
    """An offset, with its record's time and epoch where they were asked for or are known."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


ListOffsetsResponse = TopicsResponse[ListOffsetsResponsePartition]


@kafka_api(
    2,
    "ListOffsets",
    1,
    10,
    flexible_from=6,
    notes="The leader confirms the end, whichever node is asked. It never falls.",
)
async def list_offsets(call: AnyCall, request: Any) -> ListOffsetsResponse:
    """Where a partition begins and ends, and from where on a time was reached.

    The end is what was committed when the request came, confirmed by the leader: it is the same on
    all nodes and never falls. Times are looked for inside batches, compressed ones too; for that
    the node first executes what was committed. With no transactions, both isolation levels see the
    same.
    """
    failure = await catch_up(call.broker)
    deadline = asyncio.get_running_loop().time() + ANSWER_S
    topics = ((topic.name, topic.partitions) for topic in request.topics)
    return await answer_topics(topics, partial(_find, call, deadline), _refuse, failure=failure)


def _refuse(asked: Any, error: ApiError) -> ListOffsetsResponsePartition:
    return ListOffsetsResponsePartition(asked.partition_index, error.code)


async def _find(
    call: AnyCall, deadline: float, topic: str, asked: Any
) -> ListOffsetsResponsePartition:
    """Raises ApiError, LogFormatError."""
    index = asked.partition_index
    there = readable(call, topic, index, getattr(asked, "current_leader_epoch", -1))
    if asked.timestamp >= 0 or asked.timestamp == YOUNGEST:
        await until_executed(there.stream, there.committed, deadline)
    log_start = call.broker.log_start(there.topic, index)
    offset, timestamp = await _locate(call, there, asked.timestamp, log_start)
    epoch = _epoch(call, there, offset)
    return ListOffsetsResponsePartition(index, ErrorCode.none, timestamp, offset, epoch)


async def _locate(call: AnyCall, there: Readable, wanted: int, log_start: int) -> tuple[int, int]:
    """(offset, timestamp); -1 for what there is none of. Raises ApiError, LogFormatError."""
    log = there.stream.log
    if wanted == LATEST:
        return there.committed, -1
    if wanted in (EARLIEST, EARLIEST_LOCAL):
        return max(log.start_offset, log_start), -1
    if wanted == LATEST_TIERED:
        return -1, -1
    if wanted < YOUNGEST:
        raise ApiError(ErrorCode.unsupported_version, f"timestamp {wanted} means nothing here")
    since = log.highest_timestamp() if wanted == YOUNGEST else wanted
    for batch in () if since is None else log.batches_since(since):
        look = partial(record_since, batch, since or 0, log.start_offset)
        found = await call.broker.batches.checker.look(call.client.who, look)
        if found is not None:
            return found
    return -1, -1


def _epoch(call: AnyCall, there: Readable, offset: int) -> int:
    """The leader epoch of the record at an offset; of the end, the present one."""
    if offset < 0 or call.broker.epoch < 0:
        return -1
    log = there.stream.log
    return log.epoch_at(offset) if offset < log.next_offset else call.broker.epoch


class OffsetForLeaderEpochResponsePartition(Entity, frozen=True):
    """The epoch, or the one before it that has records, and the offset behind it."""

    partition: int
    error_code: ErrorCode = ErrorCode.none
    leader_epoch: int = -1
    end_offset: int = -1


class OffsetForLeaderEpochResponseTopic(Entity, frozen=True):
    """The partitions of a topic."""

    topic: str
    partitions: Sequence[OffsetForLeaderEpochResponsePartition]


class OffsetForLeaderEpochResponse(ResponseBody, frozen=True):
    """The response of `offset_for_leader_epoch`."""

    topics: Sequence[OffsetForLeaderEpochResponseTopic]


@kafka_api(
    23,
    "OffsetForLeaderEpoch",
    2,
    4,
    flexible_from=4,
    notes="Epochs are Raft's terms. Nothing that was read is ever cut off again.",
)
async def offset_for_leader_epoch(call: AnyCall, request: Any) -> OffsetForLeaderEpochResponse:
    """Up to where a leader epoch reaches, so that a consumer can tell
    whether what it read is still there (KIP-320). Here it always is: only what is committed is ever
    read. The answer is therefore never below anything that any node has shown.
    """
    failure = await catch_up(call.broker)
    return OffsetForLeaderEpochResponse(
        [
            OffsetForLeaderEpochResponseTopic(
                topic.topic,
                await answer_each(
                    topic.partitions,
                    partial(_find_epoch, call, topic.topic),
                    _refuse_epoch,
                    failure=failure,
                ),
            )
            for topic in request.topics
        ]
    )


async def _find_epoch(
    call: AnyCall, topic: str, asked: Any
) -> OffsetForLeaderEpochResponsePartition:
    """Raises ApiError, LogFormatError."""
    there = readable(call, topic, asked.partition, getattr(asked, "current_leader_epoch", -1))
    epoch, end = _end_of(there, asked.leader_epoch, call.broker.epoch)
    return OffsetForLeaderEpochResponsePartition(asked.partition, ErrorCode.none, epoch, end)


def _refuse_epoch(asked: Any, error: ApiError) -> OffsetForLeaderEpochResponsePartition:
    return OffsetForLeaderEpochResponsePartition(asked.partition, error.code)


def _end_of(there: Readable, epoch: int, present: int) -> tuple[int, int]:
    """(the epoch or the one before it that has records, the offset behind it)."""
    if 0 <= present < epoch:
        raise ApiError(ErrorCode.unknown_leader_epoch, f"epoch {epoch} is not known here yet")
    log = there.stream.log
    end = log.end_of_epoch(epoch)
    if end == log.next_offset:  # none later here, nor perhaps in what is still to be executed
        return epoch, there.committed
    return (epoch if end == log.start_offset else log.epoch_at(end - 1)), end
