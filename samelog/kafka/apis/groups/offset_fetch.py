"""OffsetFetch (9): what was committed. A group that nobody knows has committed nothing (-1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.apis.groups.answering import by_topic, check_group
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.groups.requests import Caller
from samelog.sequencer.state.group_commands import CommittedOffset

MANY_FROM = 8
"""From this version on a request may ask about many groups."""


class OffsetFetchResponsePartition(Entity, frozen=True):
    """The offset of a partition; -1: none was committed."""

    partition_index: int
    error_code: ErrorCode
    committed_offset: int = -1
    committed_leader_epoch: int = -1
    metadata: str = ""


class OffsetFetchResponseTopic(Entity, frozen=True):
    """The partitions of a topic."""

    name: str
    partitions: Sequence[OffsetFetchResponsePartition]


class OffsetFetchResponseGroup(Entity, frozen=True):
    """The offsets of a group."""

    group_id: str
    topics: Sequence[OffsetFetchResponseTopic]
    error_code: ErrorCode


class OffsetFetchResponse(ResponseBody, frozen=True):
    """The list of groups is of newer versions, the rest of older ones."""

    groups: Sequence[OffsetFetchResponseGroup] = ()
    topics: Sequence[OffsetFetchResponseTopic] = ()
    error_code: ErrorCode = ErrorCode.none


async def handle(call: NodeCall, request: Any) -> OffsetFetchResponse:
    """Answer a request of this API."""
    is_current = await call.broker.groups.is_current()
    error = ErrorCode.none if is_current else ErrorCode.not_coordinator
    if call.version >= MANY_FROM:
        return OffsetFetchResponse(
            [
                _group(call, group.group_id, group.topics, error or _check_member(call, group))
                for group in request.groups
            ]
        )
    only = _group(call, request.group_id, request.topics, error)
    return OffsetFetchResponse(topics=only.topics, error_code=error)


def _check_member(call: NodeCall, group: Any) -> ErrorCode:
    """From version 9 on a member of a group of the consumer protocol says that it is one."""
    member_id, epoch = getattr(group, "member_id", None), getattr(group, "member_epoch", -1)
    return call.broker.groups.may_fetch(Caller(group.group_id, member_id or "", None, epoch))


def _group(
    call: NodeCall, group_id: str, topics: Any, error: ErrorCode
) -> OffsetFetchResponseGroup:
    asked = () if topics is None else _named(topics)
    offsets: Mapping[int, CommittedOffset] = {}
    error = check_group(call, group_id) or error
    if error is ErrorCode.none:
        group = call.broker.machine.state.groups.by_id.get(group_id)
        offsets = {} if group is None else group.offsets
        asked = _all(call, offsets) if topics is None else asked
    answers = by_topic(
        (topic, _partition(call, topic, index, offsets, error)) for topic, index in asked
    )
    found = [OffsetFetchResponseTopic(*topic) for topic in answers]
    return OffsetFetchResponseGroup(group_id, found, error)


def _named(topics: Iterable[Any]) -> Iterator[tuple[str, int]]:
    return ((topic.name, index) for topic in topics for index in topic.partition_indexes)


def _all(call: NodeCall, offsets: Mapping[int, CommittedOffset]) -> Iterator[tuple[str, int]]:
    state = call.broker.machine.state
    for number in offsets:
        partition = state.partitions[number]
        name = state.topics[partition.topic_id].name
        if call.broker.may_read(call.client, name):
            yield name, partition.index


def _partition(
    call: NodeCall, topic: str, index: int, offsets: Mapping[int, CommittedOffset], error: ErrorCode
) -> OffsetFetchResponsePartition:
    if error is ErrorCode.none and not call.broker.may_read(call.client, topic):
        error = ErrorCode.topic_authorization_failed
    number = call.broker.partition_number(topic, index)
    known = offsets.get(number) if number is not None and error is ErrorCode.none else None
    if known is None:
        return OffsetFetchResponsePartition(index, error)
    return OffsetFetchResponsePartition(
        index, error, known.offset, known.leader_epoch, known.metadata
    )


API = KafkaApi(
    key=9,
    name="OffsetFetch",
    first=1,
    last=9,
    flexible_from=6,
    handle=handle,
    notes="Answered once a majority confirms that the coordinator still leads.",
)
