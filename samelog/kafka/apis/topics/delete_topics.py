"""DeleteTopics (20): ends topics, by name or by id; their names are free again at once."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.apis.checks import answer_each, denied, id_of, unknown
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.sequencer.state.commands import DeleteTopicCommand

IDS_FROM = 6
"""From this version on a request may name topics by id."""


class DeleteTopicsResponseTopic(Entity, frozen=True):
    """What became of one topic."""

    name: str | None
    topic_id: uuid.UUID | None
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class DeleteTopicsResponse(ResponseBody, frozen=True):
    """The response of this API."""

    responses: Sequence[DeleteTopicsResponseTopic]


class _WantedTopic(NamedTuple):
    """One of the two is not None."""

    name: str | None
    topic_id: uuid.UUID | None


async def handle(call: NodeCall, request: Any) -> DeleteTopicsResponse:
    """Answer a request of this API."""
    if call.version >= IDS_FROM:
        topics = [_WantedTopic(each.name, each.topic_id) for each in request.topics]
    else:
        topics = [_WantedTopic(name, None) for name in request.topic_names]
    await call.broker.look_for(each.topic_id or each.name for each in topics)

    async def delete(wanted: _WantedTopic) -> DeleteTopicsResponseTopic:
        return await _delete(call, wanted)

    def refuse(wanted: _WantedTopic, error: ApiError) -> DeleteTopicsResponseTopic:
        return DeleteTopicsResponseTopic(*wanted, error.code, error.message)

    return DeleteTopicsResponse(await answer_each(topics, delete, refuse))


async def _delete(call: NodeCall, wanted: _WantedTopic) -> DeleteTopicsResponseTopic:
    """Raises ApiError."""
    name, topic_id = wanted
    topic = call.broker.topic(topic_id or name or "")
    if not call.broker.may_administer(call.client):
        raise denied(name or str(topic_id))
    if topic is None and topic_id is not None:
        raise ApiError(ErrorCode.unknown_topic_id, f"no topic has the id {topic_id}")
    if topic is None:
        raise unknown(name or "")
    await call.broker.propose(DeleteTopicCommand(topic.topic_id))
    return DeleteTopicsResponseTopic(topic.name, id_of(topic))


API = KafkaApi(
    key=20,
    name="DeleteTopics",
    first=1,
    last=6,
    flexible_from=4,
    handle=handle,
    notes="The topic is gone at once. A new topic of the same name shares nothing with it.",
)
