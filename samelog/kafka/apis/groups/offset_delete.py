"""OffsetDelete (47): forget what a group committed in topics that it does not subscribe to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Reply
from samelog.kafka.apis.groups.answering import NEVER_FLEXIBLE, ask_coordinator, by_topic
from samelog.kafka.codec.schemas import Entity, ResponseBody

WHOLE_GROUP = (ErrorCode.group_id_not_found, ErrorCode.non_empty_group)
"""Errors that are the group's, not one partition's."""


class OffsetDeleteResponsePartition(Entity, frozen=True):
    """What became of one partition's offset."""

    partition_index: int
    error_code: ErrorCode


class OffsetDeleteResponseTopic(Entity, frozen=True):
    """The partitions of a topic."""

    name: str
    partitions: Sequence[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(ResponseBody, frozen=True):
    """The response of this API."""

    error_code: ErrorCode
    topics: Sequence[OffsetDeleteResponseTopic] = ()


def handle(call: NodeCall, request: Any) -> Reply:
    """Answer a request of this API."""
    asked = [
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    numbers = {each: call.broker.partition_number(*each) for each in asked}
    known = [number for number in numbers.values() if number is not None]

    def make(errors: tuple[ErrorCode, ...]) -> OffsetDeleteResponse:
        if errors and errors[0] in WHOLE_GROUP:
            return OffsetDeleteResponse(errors[0])
        said: dict[int | None, ErrorCode] = dict(zip(known, errors, strict=True))
        unknown = ErrorCode.unknown_topic_or_partition
        answers = (
            (topic, OffsetDeleteResponsePartition(index, said.get(numbers[topic, index], unknown)))
            for topic, index in asked
        )
        topics = [OffsetDeleteResponseTopic(*topic) for topic in by_topic(answers)]
        return OffsetDeleteResponse(ErrorCode.none, topics)

    if not call.broker.may_administer(call.client):
        return OffsetDeleteResponse(ErrorCode.group_authorization_failed)
    return ask_coordinator(
        call,
        lambda c, requester: c.delete_offsets(request.group_id, known, requester),
        make,
        OffsetDeleteResponse,
    )


API = KafkaApi(
    key=47,
    name="OffsetDelete",
    first=0,
    last=0,
    flexible_from=NEVER_FLEXIBLE,
    handle=handle,
    notes="Needs the right `admin`.",
)
