"""OffsetCommit (8): how far a group, or a consumer without one, has come.

Kafka's per-request retention (versions 2 to 4) is not honoured: offsets stay as long as
`offsets.retention.minutes` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Reply
from samelog.kafka.apis.groups.answering import ask_coordinator, by_topic
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.groups.requests import Caller, OffsetCommit


class OffsetCommitResponsePartition(Entity, frozen=True):
    """What became of one partition's offset."""

    partition_index: int
    error_code: ErrorCode


class OffsetCommitResponseTopic(Entity, frozen=True):
    """The partitions of a topic."""

    name: str
    partitions: Sequence[OffsetCommitResponsePartition]


class OffsetCommitResponse(ResponseBody, frozen=True):
    """The response of this API."""

    topics: Sequence[OffsetCommitResponseTopic]


def handle(call: NodeCall, request: Any) -> Reply:
    """Answer a request of this API."""
    asked = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    allowed = {
        topic.name for topic in request.topics if call.broker.may_read(call.client, topic.name)
    }
    commits = [_commit(call, topic, each) for topic, each in asked if topic in allowed]
    caller = Caller(
        request.group_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id_or_member_epoch,
    )

    def respond(errors: Iterable[ErrorCode]) -> OffsetCommitResponse:
        answers = (
            (topic, OffsetCommitResponsePartition(partition.partition_index, error))
            for (topic, partition), error in zip(asked, errors, strict=True)
        )
        topics = [OffsetCommitResponseTopic(*topic) for topic in by_topic(answers)]
        return OffsetCommitResponse(topics)

    def make(errors: tuple[ErrorCode, ...]) -> OffsetCommitResponse:
        following, denied = iter(errors), ErrorCode.topic_authorization_failed
        return respond(next(following) if topic in allowed else denied for topic, _ in asked)

    def refuse(error: ErrorCode) -> OffsetCommitResponse:
        return respond([error] * len(asked))

    return ask_coordinator(
        call,
        lambda c, requester: c.commit(caller, commits, requester),
        make,
        refuse,
        group=request.group_id,
    )


def _commit(call: NodeCall, topic: str, partition: Any) -> OffsetCommit:
    return OffsetCommit(
        call.broker.partition_number(topic, partition.partition_index),
        partition.committed_offset,
        getattr(partition, "committed_leader_epoch", -1),
        partition.committed_metadata or "",
    )


API = KafkaApi(
    key=8,
    name="OffsetCommit",
    first=2,
    last=9,
    flexible_from=8,
    handle=handle,
    notes="`retention_time_ms` is ignored. `offsets.retention.minutes` counts.",
)
