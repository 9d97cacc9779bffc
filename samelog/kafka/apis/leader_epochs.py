"""OffsetForLeaderEpoch (23): up to where a leader epoch reaches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from samelog.kafka.api import AnyCall, kafka_api
from samelog.kafka.apis.checks import Readable, answer_each, catch_up, readable
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.parts import Parts


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
    parts=Parts(("topics", "partitions"), ("topics", "partitions")),
    notes="Epochs are Raft's terms. Nothing that was read is ever cut off again.",
)
async def offset_for_leader_epoch(call: AnyCall, request: Any) -> OffsetForLeaderEpochResponse:
    """Up to where a leader epoch reaches, so that a consumer can tell
    whether what it read is still there (KIP-320). Here it always is: only what is committed is ever
    read. The answer is therefore never below anything that any node has shown.
    """
    asked = [(each.topic, part.partition) for each in request.topics for part in each.partitions]
    failure = await catch_up(call.broker, asked)
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
    epoch, end = _end_of(
        there, asked.leader_epoch, call.broker.epoch_of(there.topic, asked.partition)
    )
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
