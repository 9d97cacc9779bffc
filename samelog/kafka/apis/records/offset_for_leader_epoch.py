"""OffsetForLeaderEpoch (23): up to where a leader epoch reaches, so that a consumer can tell
whether what it read is still there (KIP-320). Here it always is: only what is committed is ever
read. The answer is therefore never below anything that any node has shown.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.format.errors import LogFormatError
from samelog.kafka.api import AnyCall, KafkaApi
from samelog.kafka.apis.records.partitions import Readable, readable
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Tree


async def handle(call: AnyCall, request: Any) -> Tree:
    """Answer a request."""
    refusal: ApiError | None = None
    try:
        await call.broker.catch_up()
    except ApiError as refused:
        refusal = refused
    topics = [
        {
            "topic": topic.topic,
            "partitions": [_answer(call, topic.topic, each, refusal) for each in topic.partitions],
        }
        for topic in request.topics
    ]
    return {"topics": topics}


def _answer(call: AnyCall, topic: str, asked: Any, refusal: ApiError | None) -> Tree:
    try:
        if refusal is not None:
            raise refusal
        there = readable(call, topic, asked.partition, getattr(asked, "current_leader_epoch", -1))
        epoch, end = _end_of(there, asked.leader_epoch, call.broker.epoch)
    except ApiError as refused:
        return {"partition": asked.partition, "error_code": refused.code}
    except LogFormatError:
        return {"partition": asked.partition, "error_code": ErrorCode.kafka_storage_error}
    return {
        "partition": asked.partition,
        "error_code": ErrorCode.none,
        "leader_epoch": epoch,
        "end_offset": end,
    }


def _end_of(there: Readable, epoch: int, present: int) -> tuple[int, int]:
    """(the epoch or the one before it that has records, the offset behind it)."""
    if 0 <= present < epoch:
        raise ApiError(ErrorCode.unknown_leader_epoch, f"epoch {epoch} is not known here yet")
    log = there.stream.log
    end = log.end_of_epoch(epoch)
    if end == log.next_offset:  # none later here, nor perhaps in what is still to be executed
        return epoch, there.committed
    return (epoch if end == log.start_offset else log.epoch_at(end - 1)), end


API = KafkaApi(
    key=23,
    name="OffsetForLeaderEpoch",
    first=2,
    last=4,
    flexible_from=4,
    handle=handle,
    notes="Epochs are Raft's terms. Nothing that was read is ever cut off again.",
)
