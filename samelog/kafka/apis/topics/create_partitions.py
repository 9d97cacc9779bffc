"""CreatePartitions (37): lets topics have more partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.apis.checks import administered, answer_each, check_partitions
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.sequencer.state.setting_commands import AddPartitions


class CreatePartitionsResponseTopic(Entity, frozen=True):
    """What became of one topic."""

    name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class CreatePartitionsResponse(ResponseBody, frozen=True):
    """The response of this API."""

    results: Sequence[CreatePartitionsResponseTopic]


async def handle(call: NodeCall, request: Any) -> CreatePartitionsResponse:
    """Answer a request of this API."""
    await call.broker.look_for(topic.name for topic in request.topics)

    async def add(wanted: Any) -> CreatePartitionsResponseTopic:
        command = _command(call, wanted)
        if not request.validate_only:
            await call.broker.propose(command)
        return CreatePartitionsResponseTopic(wanted.name)

    def refuse(wanted: Any, error: ApiError) -> CreatePartitionsResponseTopic:
        return CreatePartitionsResponseTopic(wanted.name, error.code, error.message)

    return CreatePartitionsResponse(await answer_each(request.topics, add, refuse))


def _command(call: NodeCall, wanted: Any) -> AddPartitions:
    """Raises ApiError."""
    topic = administered(call.broker, call.client, wanted.name)
    if wanted.count <= topic.partitions:
        text = f"topic {topic.name!r} has {topic.partitions} partitions already"
        raise ApiError(ErrorCode.invalid_partitions, text)
    check_partitions(wanted.count)
    added = wanted.count - topic.partitions
    if wanted.assignments is not None and len(wanted.assignments) != added:
        text = f"{len(wanted.assignments)} assignments for {added} new partitions"
        raise ApiError(ErrorCode.invalid_replica_assignment, text)
    return AddPartitions(topic.topic_id, wanted.count)


API = KafkaApi(
    key=37,
    name="CreatePartitions",
    first=0,
    last=3,
    flexible_from=2,
    handle=handle,
    notes="Every node holds every partition, whatever the assignment.",
)
