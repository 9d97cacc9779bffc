"""OffsetDelete (47): forget what a group committed in topics that it does not subscribe to."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Outcome
from samelog.kafka.apis.groups.answering import NEVER_FLEXIBLE, answered, by_topic, partition_number
from samelog.kafka.codec.schemas import Tree


def _handle(call: NodeCall, request: Any) -> Outcome:
    asked = [
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    numbers = {place: partition_number(call, *place) for place in asked}
    known = [number for number in numbers.values() if number is not None]

    def made(errors: tuple[ErrorCode, ...]) -> Tree:
        if errors and errors[0] in (ErrorCode.group_id_not_found, ErrorCode.non_empty_group):
            return _lost(errors[0])
        said = dict(zip(known, errors, strict=True))
        unknown = ErrorCode.unknown_topic_or_partition
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


API = KafkaApi(
    key=47,
    name="OffsetDelete",
    first=0,
    last=0,
    flexible_from=NEVER_FLEXIBLE,
    handle=_handle,
    notes="For administrators.",
)
