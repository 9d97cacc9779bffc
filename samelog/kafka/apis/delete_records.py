"""DeleteRecords (21): archives what is below an offset, on all nodes, for ever.

Only the log start is raised here; the leader's next round of archiving truncates the files.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.archiver.command import ArchiveCommand
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import answer_topics, catch_up, denied, no_partition
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, TopicsResponse
from samelog.sequencer.state.types import Partition

HIGH_WATERMARK = -1
NO_LOG_START = -1
POLL_S = 0.02
LONGEST_S = 60.0


class DeleteRecordsResponsePartition(Entity, frozen=True):
    """Where a partition begins afterwards."""

    partition_index: int
    low_watermark: int
    error_code: ErrorCode = ErrorCode.none


DeleteRecordsResponse = TopicsResponse[DeleteRecordsResponsePartition]


@kafka_api(
    21,
    "DeleteRecords",
    0,
    2,
    flexible_from=2,
    notes="Records below the offset cannot be read from then on. Segments that are wholly below it "
    "are truncated. Every node accepts the request.",
)
async def delete_records(call: NodeCall, request: Any) -> DeleteRecordsResponse:
    """Answer a request of this API."""
    failure = await catch_up(call.broker)
    wait_s = min(LONGEST_S, max(0.0, request.timeout.total_seconds()))
    deadline = asyncio.get_running_loop().time() + wait_s
    topics = ((topic.name, topic.partitions) for topic in request.topics)
    return await answer_topics(topics, partial(_delete, call, deadline), _refuse, failure=failure)


def _refuse(asked: Any, error: ApiError) -> DeleteRecordsResponsePartition:
    return DeleteRecordsResponsePartition(asked.partition_index, NO_LOG_START, error.code)


async def _delete(
    call: NodeCall, deadline: float, topic: str, asked: Any
) -> DeleteRecordsResponsePartition:
    """Raises ApiError."""
    broker = call.broker
    if not broker.may_administer(call.client):
        raise denied(topic)
    known = broker.topic(topic)
    stream = None if known is None else broker.partition(known, asked.partition_index)
    if stream is None:
        raise no_partition(topic, asked.partition_index)
    state = broker.machine.state.partitions[stream.merger.number]
    offset = state.next_offset if asked.offset == HIGH_WATERMARK else asked.offset
    if not 0 <= offset <= state.next_offset:
        text = f"offset {offset} is not in [{state.log_start}, {state.next_offset}]"
        raise ApiError(ErrorCode.offset_out_of_range, text)
    if offset > state.log_start:
        await _until_merged(call, state, offset, deadline)
        reason = f"deleted by {call.client.identity}"
        kept = state.start_segment, state.start_checksum
        now_ms = broker.clock.wall_ms()
        await broker.propose(ArchiveCommand(state.number, offset, *kept, now_ms, reason))
    return DeleteRecordsResponsePartition(asked.partition_index, state.log_start)


async def _until_merged(call: NodeCall, state: Partition, offset: int, deadline: float) -> None:
    """Nothing is archived that a majority has not merged durably. Raises ApiError."""
    while call.broker.merged_on_majority(state.number) < offset:
        if asyncio.get_running_loop().time() > deadline:
            raise ApiError(ErrorCode.request_timed_out, "a majority has not merged it yet")
        await asyncio.sleep(POLL_S)
