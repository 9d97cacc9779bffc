"""CreateTopics (19): makes topics, of which every node holds every partition.

Any node takes the request. A replication factor is accepted as far as there are nodes, and then
means nothing. An assignment of partitions to nodes is taken for its number of partitions.
"""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.apis.topics import configs
from samelog.kafka.apis.topics.topics import (
    check_name,
    check_partitions,
    check_replicas,
    check_settings,
    denied,
)
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Tree


async def handle(call: NodeCall, request: Any) -> Tree:
    """Answer a request."""
    counts = Counter(topic.name for topic in request.topics)
    answers = []
    for topic in request.topics:
        try:
            if counts[topic.name] > 1:
                raise ApiError(ErrorCode.invalid_request, "the topic is there twice")
            answers.append(await _create(call, topic, validate_only=request.validate_only))
        except ApiError as refusal:
            answers.append(
                {
                    "name": topic.name,
                    "topic_id": None,
                    "error_code": refusal.code,
                    "error_message": refusal.message,
                    "configs": [],
                }
            )
    return {"topics": answers}


async def _create(call: NodeCall, wanted: Any, *, validate_only: bool) -> Tree:
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
    topic = broker.topic(wanted.name)
    listed = [] if topic is None else configs.of_topic(broker, topic)
    return {
        "name": wanted.name,
        "topic_id": None if validate_only else topic_id,
        "error_code": ErrorCode.none,
        "error_message": None,
        "num_partitions": partitions,
        "replication_factor": len(broker.nodes()),
        "configs": listed,
    }


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
    notes="Every node holds every topic, whatever replication factor or assignment is asked for.",
)
