"""OffsetCommit (8): how far a group, or a consumer without one, has come.

Kafka's per-request retention (versions 2 to 4) is not honoured: offsets stay as long as
`offsets.retention.minutes` says.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Outcome
from samelog.kafka.apis.groups.answering import answered, by_topic, partition_number
from samelog.kafka.codec.schemas import Tree
from samelog.kafka.groups.requests import Caller, OffsetCommit


def _handle(call: NodeCall, request: Any) -> Outcome:
    asked = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    allowed = {
        topic.name for topic in request.topics if call.broker.may_read(call.client, topic.name)
    }
    commits = [
        OffsetCommit(
            partition_number(call, topic, partition.partition_index),
            partition.committed_offset,
            getattr(partition, "committed_leader_epoch", -1),
            partition.committed_metadata or "",
        )
        for topic, partition in asked
        if topic in allowed
    ]
    caller = Caller(
        request.group_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id_or_member_epoch,
    )

    def made(errors: tuple[ErrorCode, ...]) -> Tree:
        following = iter(errors)
        return _tree(
            (topic, partition.partition_index, next(following))
            if topic in allowed
            else (topic, partition.partition_index, ErrorCode.topic_authorization_failed)
            for topic, partition in asked
        )

    def lost(error: ErrorCode) -> Tree:
        return _tree((topic, partition.partition_index, error) for topic, partition in asked)

    group = request.group_id
    return answered(call, group, lambda c, waiter: c.commit(caller, commits, waiter), made, lost)


def _tree(partitions: Any) -> Tree:
    topics = by_topic(
        (topic, {"partition_index": index, "error_code": error})
        for topic, index, error in partitions
    )
    return {"throttle_time": 0, "topics": topics}


API = KafkaApi(
    key=8,
    name="OffsetCommit",
    first=2,
    last=9,
    flexible_from=8,
    handle=_handle,
    notes="`retention_time_ms` is not honoured, `offsets.retention.minutes` is.",
)
