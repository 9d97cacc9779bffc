"""OffsetFetch (9): what was committed. A group that nobody knows has committed nothing (-1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.apis.groups.answering import by_topic, partition_number, problem
from samelog.kafka.codec.schemas import Tree
from samelog.kafka.groups.requests import Caller
from samelog.sequencer.state.group_commands import Offset

MANY_FROM = 8
"""From this version on a request may ask about many groups."""


async def _handle(call: NodeCall, request: Any) -> Tree:
    is_current = await call.broker.groups.is_current()
    error = ErrorCode.none if is_current else ErrorCode.not_coordinator
    if call.version >= MANY_FROM:
        groups = [
            _group(call, group.group_id, group.topics, error or _check(call, group))
            for group in request.groups
        ]
        return {"throttle_time": 0, "groups": groups}
    tree = _group(call, request.group_id, request.topics, error)
    return {"throttle_time": 0, "topics": tree["topics"], "error_code": error}


def _check(call: NodeCall, group: Any) -> ErrorCode:
    """From version 9 on a member of a group of the consumer protocol says that it is one."""
    member_id, epoch = getattr(group, "member_id", None), getattr(group, "member_epoch", -1)
    caller = Caller(group.group_id, member_id or "", None, epoch)
    return ErrorCode(int(call.broker.groups.may_fetch(caller)))


def _group(call: NodeCall, group_id: str, topics: Any, error: ErrorCode) -> Tree:
    asked = () if topics is None else _named(topics)
    offsets: Mapping[int, Offset] = {}
    error = problem(call, group_id) or error
    if error is ErrorCode.none:
        group = call.broker.machine.state.groups.by_id.get(group_id)
        offsets = {} if group is None else group.offsets
        asked = _all(call, offsets) if topics is None else asked
    answers = by_topic(
        (topic, _partition(call, topic, index, offsets, error)) for topic, index in asked
    )
    return {"group_id": group_id, "topics": answers, "error_code": error}


def _named(topics: Iterable[Any]) -> Iterator[tuple[str, int]]:
    return ((topic.name, index) for topic in topics for index in topic.partition_indexes)


def _all(call: NodeCall, offsets: Mapping[int, Offset]) -> Iterator[tuple[str, int]]:
    state = call.broker.machine.state
    for number in offsets:
        partition = state.partitions[number]
        name = state.topics[partition.topic_id].name
        if call.broker.may_read(call.client, name):
            yield name, partition.index


def _partition(
    call: NodeCall, topic: str, index: int, offsets: Mapping[int, Offset], error: ErrorCode
) -> Tree:
    if error is ErrorCode.none and not call.broker.may_read(call.client, topic):
        error = ErrorCode.topic_authorization_failed
    number = partition_number(call, topic, index)
    known = offsets.get(number) if number is not None and error is ErrorCode.none else None
    return {
        "partition_index": index,
        "committed_offset": -1 if known is None else known.offset,
        "committed_leader_epoch": -1 if known is None else known.leader_epoch,
        "metadata": "" if known is None else known.metadata,
        "error_code": error,
    }


API = KafkaApi(
    key=9,
    name="OffsetFetch",
    first=1,
    last=9,
    flexible_from=6,
    handle=_handle,
    notes="Answered when a majority confirms that the coordinator still leads.",
)
