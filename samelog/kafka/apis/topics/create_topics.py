"""CreateTopics (19): makes topics, of which every node holds every partition.

Any node takes the request. A replication factor is accepted as far as there are nodes, and then
means nothing. An assignment of partitions to nodes is taken for its number of partitions.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.apis.checks import (
    answer_each,
    check_name,
    check_partitions,
    check_replicas,
    check_settings,
    denied,
)
from samelog.kafka.apis.topics import configs
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody


class CreateTopicsResponseConfig(Entity, frozen=True):
    """A setting of a topic."""

    name: str
    value: str
    read_only: bool
    config_source: configs.ConfigSource
    is_sensitive: bool = False


class CreateTopicsResponseTopic(Entity, frozen=True):
    """What became of one topic."""

    name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    topic_id: uuid.UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[CreateTopicsResponseConfig] = ()


class CreateTopicsResponse(ResponseBody, frozen=True):
    """The response of this API."""

    topics: Sequence[CreateTopicsResponseTopic]


async def handle(call: NodeCall, request: Any) -> CreateTopicsResponse:
    """Answer a request of this API."""
    counts = Counter(topic.name for topic in request.topics)

    async def create(wanted: Any) -> CreateTopicsResponseTopic:
        if counts[wanted.name] > 1:
            raise ApiError(ErrorCode.invalid_request, "the topic is there twice")
        return await _create(call, wanted, validate_only=request.validate_only)

    def refuse(wanted: Any, error: ApiError) -> CreateTopicsResponseTopic:
        return CreateTopicsResponseTopic(wanted.name, error.code, error.message)

    return CreateTopicsResponse(await answer_each(request.topics, create, refuse))


async def _create(call: NodeCall, wanted: Any, *, validate_only: bool) -> CreateTopicsResponseTopic:
    """Raises ApiError."""
    broker = call.broker
    check_name(wanted.name)
    if not broker.may_administer(call.client):
        raise denied(wanted.name)
    partitions = check_partitions(_partitions(call, wanted))
    settings = check_settings({each.name: each.value for each in wanted.configs})
    if broker.topic(wanted.name) is not None:
        text = f"topic {wanted.name!r} exists already"
        raise ApiError(ErrorCode.topic_already_exists, text)
    topic_id = uuid.uuid4()
    if not validate_only:
        await broker.create_topic(wanted.name, topic_id, partitions, settings)
    return CreateTopicsResponseTopic(
        wanted.name,
        topic_id=None if validate_only else topic_id,
        num_partitions=partitions,
        replication_factor=len(broker.nodes()),
        configs=_configs(call, wanted.name),
    )


def _configs(call: NodeCall, name: str) -> list[CreateTopicsResponseConfig]:
    topic = call.broker.topic(name)
    return [
        CreateTopicsResponseConfig(each.name, each.value, each.read_only, each.config_source)
        for each in (() if topic is None else configs.of_topic(call.broker, topic))
    ]


def _partitions(call: NodeCall, wanted: Any) -> int:
    """How many partitions are wanted. Raises ApiError."""
    if wanted.assignments:
        if wanted.num_partitions != -1 or wanted.replication_factor != -1:
            text = "either an assignment, or numbers of partitions and replicas"
            raise ApiError(ErrorCode.invalid_request, text)
        indexes = sorted(each.partition_index for each in wanted.assignments)
        if indexes != list(range(len(indexes))):
            text = "an assignment must name partitions from 0 on, each once"
            raise ApiError(ErrorCode.invalid_replica_assignment, text)
        return len(indexes)
    check_replicas(wanted.replication_factor, len(call.broker.nodes()))
    if wanted.num_partitions == -1:
        return call.broker.defaults.num_partitions
    return int(wanted.num_partitions)


API = KafkaApi(
    key=19,
    name="CreateTopics",
    first=2,
    last=7,
    flexible_from=5,
    handle=handle,
    notes="Every node holds every topic, whatever the replication factor or the assignment.",
)
