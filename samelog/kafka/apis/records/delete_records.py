"""DeleteRecords (21): archives what is below an offset, on all nodes, for ever.

Only the log start is raised here; the leader's next round of archiving truncates the files.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.archiver.command import ArchiveCommand
from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.apis.topics.topics import denied
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Tree
from samelog.sequencer.state.types import Partition

HIGH_WATERMARK = -1
NO_LOG_START = -1
LOOK_S = 0.02
LONGEST_S = 60.0


async def handle(call: NodeCall, request: Any) -> Tree:
    """Answer a request."""
    refusal: ApiError | None = None
    try:
        await call.broker.catch_up()
    except ApiError as refused:
        refusal = refused
    wait_s = min(LONGEST_S, max(0.0, request.timeout.total_seconds()))
    deadline = asyncio.get_running_loop().time() + wait_s
    topics = []
    for topic in request.topics:
        parts = [
            await _answer(call, topic.name, asked, refusal, deadline) for asked in topic.partitions
        ]
        topics.append({"name": topic.name, "partitions": parts})
    return {"topics": topics}


async def _answer(
    call: NodeCall, topic: str, asked: Any, refusal: ApiError | None, deadline: float
) -> Tree:
    start, code = NO_LOG_START, ErrorCode.none
    try:
        if refusal is not None:
            raise refusal
        start = await _delete(call, topic, asked, deadline)
    except ApiError as refused:
        code = refused.code
    return {
        "partition_index": asked.partition_index,
        "low_watermark": start,
        "error_code": code,
    }


async def _delete(call: NodeCall, topic: str, asked: Any, deadline: float) -> int:
    """The log start afterwards. Raises ApiError."""
    broker = call.broker
    if not broker.may_administer(call.client):
        raise denied(topic)
    stream = broker.partition(topic, asked.partition_index)
    if stream is None:
        text = f"there is no partition {asked.partition_index} of topic {topic!r}"
        raise ApiError(ErrorCode.unknown_topic_or_partition, text)
    state = broker.machine.state.partitions[stream.merger.number]
    offset = state.next_offset if asked.offset == HIGH_WATERMARK else asked.offset
    if not 0 <= offset <= state.next_offset:
        text = f"offset {offset} is not in [{state.log_start}, {state.next_offset}]"
        raise ApiError(ErrorCode.offset_out_of_range, text)
    if offset > state.log_start:
        await _until_merged(call, state, offset, deadline)
        now_ms = broker.node.clock.wall_ms()
        reason = f"deleted by {call.client.identity}"
        kept = state.start_segment, state.start_checksum
        await broker.propose(ArchiveCommand(state.number, offset, *kept, now_ms, reason))
    return state.log_start


async def _until_merged(call: NodeCall, state: Partition, offset: int, deadline: float) -> None:
    """Nothing is archived that a majority has not merged durably. Raises ApiError."""
    cursors = call.broker.node.coordinator.cursors
    while cursors.get(state.number, 0) < offset:
        if asyncio.get_running_loop().time() > deadline:
            raise ApiError(ErrorCode.request_timed_out, "a majority has not merged it yet")
        await asyncio.sleep(LOOK_S)


API = KafkaApi(
    key=21,
    name="DeleteRecords",
    first=0,
    last=2,
    flexible_from=2,
    handle=handle,
    notes="What is below the offset cannot be read from then on; whole segments of it give their "
    "disk back. Every node takes the request.",
)
