"""OffsetDelete (47): forget what a group committed in topics that it does not subscribe to."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import Api, Call, Outcome
from samelog.kafka.apis.groups.answering import NEVER_FLEXIBLE, answered, by_topic, partition_number
from samelog.kafka.codec.schemas import Tree
from samelog.kafka.groups.requests import GroupError


def _handle(call: Call, request: Any) -> Outcome:
    asked = [
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    numbers = {place: partition_number(call, *place) for place in asked}
    known = [number for number in numbers.values() if number is not None]

    def made(errors: tuple[GroupError, ...]) -> Tree:
        if errors and errors[0] in (GroupError.GROUP_ID_NOT_FOUND, GroupError.NON_EMPTY_GROUP):
            return _lost(ErrorCode(int(errors[0])))
        said = dict(zip(known, errors, strict=True))
        unknown = GroupError.UNKNOWN_TOPIC_OR_PARTITION
        topics = by_topic(
            (
                topic,
                {
                    "partition_index": index,
                    "error_code": ErrorCode(int(said.get(numbers[topic, index] or 0, unknown))),
                },
            )
            for topic, index in asked
        )
        return {"error_code": ErrorCode.none, "throttle_time": 0, "topics": topics}

    if not call.broker.may_administer(call.client):
        return _lost(ErrorCode.group_authorization_failed)
    return answered(
        call, None, lambda c, waiter: c.delete_offsets(request.group_id, known, waiter), made, _lost
    )


def _lost(error: ErrorCode) -> Tree:
    return {"error_code": error, "throttle_time": 0, "topics": []}


API = Api(
    key=47,
    name="OffsetDelete",
    first=0,
    last=0,
    flexible_from=NEVER_FLEXIBLE,
    handle=_handle,
    notes="For administrators.",
)
