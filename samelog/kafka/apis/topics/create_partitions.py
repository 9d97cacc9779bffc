"""CreatePartitions (37): lets topics have more partitions."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.apis.topics.topics import check_partitions, denied, unknown
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Tree
from samelog.sequencer.state.setting_commands import AddPartitions


async def handle(call: NodeCall, request: Any) -> Tree:
    """Answer a request."""
    await call.broker.look_for(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        error: tuple[ErrorCode, str | None] = ErrorCode.none, None
        try:
            await _add(call, topic, validate_only=request.validate_only)
        except ApiError as refusal:
            error = refusal.code, refusal.message
        results.append({"name": topic.name, "error_code": error[0], "error_message": error[1]})
    return {"results": results}


async def _add(call: NodeCall, wanted: Any, *, validate_only: bool) -> None:
    """Raises ApiError."""
    broker = call.broker
    if not broker.may_administer(call.client):
        raise denied(wanted.name)
    topic = broker.topic(wanted.name)
    if topic is None:
        raise unknown(wanted.name)
    if wanted.count <= topic.partitions:
        text = f"topic {topic.name!r} has {topic.partitions} partitions already"
        raise ApiError(ErrorCode.invalid_partitions, text)
    check_partitions(wanted.count)
    added = wanted.count - topic.partitions
    if wanted.assignments is not None and len(wanted.assignments) != added:
        text = f"{len(wanted.assignments)} assignments for {added} new partitions"
        raise ApiError(ErrorCode.invalid_replica_assignment, text)
    if not validate_only:
        await broker.propose(AddPartitions(topic.topic_id, wanted.count))


API = KafkaApi(
    key=37,
    name="CreatePartitions",
    first=0,
    last=3,
    flexible_from=2,
    handle=handle,
    notes="Every node holds them, whatever assignment is asked for.",
)
