"""ListOffsets (2): where a partition begins and ends, and from where on a time was reached.

The end is what was committed when the request came, confirmed by the leader: it is the same on all
nodes and never falls. Times are looked for inside batches, compressed ones too; for that the node
first executes what was committed. With no transactions, both isolation levels see the same.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.format.errors import LogFormatError
from samelog.kafka.api import AnyCall, KafkaApi
from samelog.kafka.apis.records.partitions import Readable, readable, until_executed
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Tree

ANSWER_S = 3.0
"""How long this may take to get what is committed."""
LATEST, EARLIEST, YOUNGEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


async def handle(call: AnyCall, request: Any) -> Tree:
    """Answer a request."""
    refusal: ApiError | None = None
    try:
        await call.broker.catch_up()
    except ApiError as refused:
        refusal = refused
    deadline = asyncio.get_running_loop().time() + ANSWER_S
    topics = []
    for topic in request.topics:
        answers = [
            await _answer(call, topic.name, each, refusal, deadline) for each in topic.partitions
        ]
        topics.append({"name": topic.name, "partitions": answers})
    return {"topics": topics}


async def _answer(
    call: AnyCall, topic: str, asked: Any, refusal: ApiError | None, deadline: float
) -> Tree:
    index = asked.partition_index
    try:
        if refusal is not None:
            raise refusal
        there = readable(call, topic, index, getattr(asked, "current_leader_epoch", -1))
        if asked.timestamp >= 0 or asked.timestamp == YOUNGEST:
            await until_executed(there, there.committed, deadline)
        log_start = call.broker.log_start(topic, index)
        offset, timestamp = _find(there, asked.timestamp, log_start)
        epoch = _epoch(call, there, offset)
    except ApiError as refused:
        return {"partition_index": index, "error_code": refused.code}
    except LogFormatError:
        return {"partition_index": index, "error_code": ErrorCode.kafka_storage_error}
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": epoch,
    }


def _find(there: Readable, wanted: int, log_start: int) -> tuple[int, int]:
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
    found = log.youngest() if wanted == YOUNGEST else log.locate_record(wanted)
    return (-1, -1) if found is None else found


def _epoch(call: AnyCall, there: Readable, offset: int) -> int:
    """The leader epoch of the record at an offset; of the end, the present one."""
    if offset < 0 or call.broker.epoch < 0:
        return -1
    log = there.stream.log
    return log.epoch_at(offset) if offset < log.next_offset else call.broker.epoch


API = KafkaApi(
    key=2,
    name="ListOffsets",
    first=1,
    last=10,
    flexible_from=6,
    handle=handle,
    notes="The end is confirmed by the leader, whichever node is asked: it never falls.",
)
