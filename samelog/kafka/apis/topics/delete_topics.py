"""DeleteTopics (20): ends topics, by name or by id; their names are free again at once."""

from __future__ import annotations

import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.apis.topics.topics import denied, id_of, unknown
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Tree
from samelog.sequencer.state.commands import DeleteTopic


async def handle(call: NodeCall, request: Any) -> Tree:
    """Answer a request."""
    if call.version >= 6:
        wanted = [(each.name, each.topic_id) for each in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    await call.broker.look_for(topic_id or name for name, topic_id in wanted)
    return {
        "responses": [await _delete(call, name, topic_id) for name, topic_id in wanted],
    }


async def _delete(call: NodeCall, name: str | None, topic_id: uuid.UUID | None) -> Tree:
    answer: dict[str, Any] = {"name": name, "topic_id": topic_id}
    try:
        topic = call.broker.topic(topic_id or name or "")
        known = name if topic is None else topic.name
        if not call.broker.may_administer(call.client):
            raise denied(name or str(topic_id))
        if topic is None and topic_id is not None:
            raise ApiError(ErrorCode.unknown_topic_id, f"no topic has the id {topic_id}")
        if topic is None:
            raise unknown(name or "")
        await call.broker.propose(DeleteTopic(topic.topic_id))
    except ApiError as refusal:
        return answer | {"error_code": refusal.code, "error_message": refusal.message}
    found = {"name": known, "topic_id": id_of(topic)}
    return answer | found | {"error_code": ErrorCode.none, "error_message": None}


API = KafkaApi(
    key=20,
    name="DeleteTopics",
    first=1,
    last=6,
    flexible_from=4,
    handle=handle,
    notes="At once, and for ever: a topic made anew under the name shares nothing with it.",
)
