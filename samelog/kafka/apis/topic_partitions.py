"""DescribeTopicPartitions (75): what Metadata says of partitions, a part of them at a time.

Invariant: who follows the cursors to the end has seen every partition that was there all the time,
once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import NO_OPERATIONS, check_name, id_of, topic_operations
from samelog.kafka.apis.metadata import MetadataResponsePartition, partitions_of
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.runtime.slices import give_way
from samelog.sequencer.state.tables.topics import Topic

LIMIT = 2_000
"""Partitions in one answer."""


class DescribedPartition(MetadataResponsePartition, frozen=True):
    """A partition. Nobody but the members of Raft's quorum can ever lead."""

    eligible_leader_replicas: Sequence[int] = ()
    last_known_elr: Sequence[int] = ()


class DescribedTopic(Entity, frozen=True):
    """A topic with some of its partitions."""

    name: str
    error_code: ErrorCode = ErrorCode.none
    topic_id: uuid.UUID | None = None
    partitions: Sequence[DescribedPartition] = ()
    topic_authorized_operations: int = NO_OPERATIONS
    is_internal: bool = False


class PartitionCursor(Entity, frozen=True):
    """Where the next answer begins."""

    topic_name: str
    partition_index: int


class DescribeTopicPartitionsResponse(ResponseBody, frozen=True):
    """The response of `describe_topic_partitions`."""

    topics: Sequence[DescribedTopic]
    next_cursor: PartitionCursor | None = None


@kafka_api(
    75,
    "DescribeTopicPartitions",
    0,
    0,
    flexible_from=0,
    notes="The lists of eligible leaders are empty.",
)
async def describe_topic_partitions(
    call: NodeCall, request: Any
) -> DescribeTopicPartitionsResponse:
    """Topics by name, in that order, from the cursor on; all topics if none is named."""
    await call.broker.look_for(each.name for each in request.topics)
    left = min(LIMIT, max(1, request.response_partition_limit))
    found: list[DescribedTopic] = []
    for name, first in _from_cursor(call, request):
        await give_way()
        if not left:
            return DescribeTopicPartitionsResponse(found, PartitionCursor(name, first))
        topic = _found(call, name)
        if not isinstance(topic, Topic):
            found.append(DescribedTopic(name, topic.code))
            continue
        stop = min(topic.partitions, first + left)
        found.append(_described(call, topic, range(first, stop)))
        left -= max(0, stop - first)
        if stop < topic.partitions:
            return DescribeTopicPartitionsResponse(found, PartitionCursor(name, stop))
    return DescribeTopicPartitionsResponse(found)


def _from_cursor(call: NodeCall, request: Any) -> Iterator[tuple[str, int]]:
    """(topic, first partition) of what is to be told."""
    broker, cursor = call.broker, request.cursor
    names = {each.name for each in request.topics} or {
        topic.name for topic in broker.listed() if broker.may_describe(call.client, topic.name)
    }
    for name in sorted(names):
        if cursor is None or name > cursor.topic_name:
            yield name, 0
        elif name == cursor.topic_name:
            yield name, max(0, cursor.partition_index)


def _found(call: NodeCall, name: str) -> Topic | ApiError:
    try:
        check_name(name)
    except ApiError as error:
        return error
    if not call.broker.may_describe(call.client, name):
        return ApiError(ErrorCode.topic_authorization_failed, name)
    topic = call.broker.shown(name)
    return topic or ApiError(ErrorCode.unknown_topic_or_partition, name)


def _described(call: NodeCall, topic: Topic, indexes: range) -> DescribedTopic:
    known = partitions_of(call.broker, topic, indexes, DescribedPartition)
    operations = topic_operations(call.broker, call.client, topic.name)
    return DescribedTopic(
        topic.name,
        topic_id=id_of(topic),
        partitions=known,
        topic_authorized_operations=operations,
        is_internal=topic.is_generated,
    )
