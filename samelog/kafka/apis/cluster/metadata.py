"""Metadata (3): which nodes there are, where, and who leads what.

Every partition is led by the Raft leader, in the epoch of its term, and all nodes are in sync
replicas. Addresses are those of the listener that the client came by. A topic that is asked for by
name and is not there is made, if the client wants that, the configuration allows it, and the client
may publish to it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.any_broker import AnyBroker
from samelog.kafka.api import AnyCall, KafkaApi
from samelog.kafka.apis.cluster.operations import cluster_operations, topic_operations
from samelog.kafka.apis.topics.topics import check_name, denied, id_of, unknown
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Tree
from samelog.sequencer.state.types import Topic

NO_OPERATIONS = -(1 << 31)
"""The client did not ask for them."""


async def handle(call: AnyCall, request: Any) -> Tree:
    """Answer a request."""
    broker, listener = call.broker, call.client.listener
    asked = request.topics
    if asked is None or (call.version == 0 and not asked):
        found = [topic for topic in broker.topics() if broker.may_describe(call.client, topic.name)]
        topics = [_described(call, topic, request) for topic in found]
    else:
        topics = [await _asked(call, each, request) for each in asked]
    return {
        "brokers": [
            {"node_id": end.number, "host": end.host, "port": end.port, "rack": end.rack}
            for end in broker.endpoints(listener)
        ],
        "cluster_id": broker.cluster,
        "controller_id": broker.controller(listener),
        "topics": topics,
        "cluster_authorized_operations": _cluster_operations(call, request),
    }


def _cluster_operations(call: AnyCall, request: Any) -> int:
    wanted = getattr(request, "include_cluster_authorized_operations", False)
    return cluster_operations(call.broker, call.client) if wanted else NO_OPERATIONS


async def _asked(call: AnyCall, asked: Any, request: Any) -> Tree:
    """What is said of one topic that was asked for."""
    topic_id: uuid.UUID | None = getattr(asked, "topic_id", None)
    try:
        topic = await _find(call, asked.name, topic_id, request)
    except ApiError as refusal:
        return {
            "error_code": refusal.code,
            "name": asked.name if topic_id is None or call.version >= 12 else "",
            "topic_id": topic_id,
            "partitions": [],
        }
    return _described(call, topic, request)


async def _find(call: AnyCall, name: str | None, topic_id: uuid.UUID | None, request: Any) -> Topic:
    """The topic, made if it may be. Raises ApiError."""
    broker = call.broker
    if topic_id is not None:
        return await _find_by_id(call, topic_id)
    check_name(name or "")
    name = name or ""
    if not broker.may_describe(call.client, name):
        raise denied(name)
    topic = broker.topic(name)
    if topic is None:
        await broker.catch_up()  # what is not known here might only be new
        topic = broker.topic(name)
    if topic is None and _may_create(call, name, request):
        await _create(broker, name)
        topic = broker.topic(name)
    if topic is None:
        raise unknown(name)
    return topic


async def _find_by_id(call: AnyCall, topic_id: uuid.UUID) -> Topic:
    broker = call.broker
    if broker.topic(topic_id) is None:
        await broker.catch_up()
    topic = broker.topic(topic_id)
    if topic is None or not broker.may_describe(call.client, topic.name):
        raise ApiError(ErrorCode.unknown_topic_id, f"no topic has the id {topic_id}")
    return topic


def _may_create(call: AnyCall, name: str, request: Any) -> bool:
    broker = call.broker
    wanted = getattr(request, "allow_auto_topic_creation", True)
    may = broker.may_write(call.client, name) or broker.may_administer(call.client)
    return bool(wanted and broker.auto_creates and may)


async def _create(broker: AnyBroker, name: str) -> None:
    try:
        await broker.create_by_default(name)
    except ApiError as refusal:
        if refusal.code is not ErrorCode.topic_already_exists:  # somebody else was faster
            raise


def _described(call: AnyCall, topic: Topic, request: Any) -> Tree:
    broker = call.broker
    wanted = getattr(request, "include_topic_authorized_operations", False)
    operations = topic_operations(broker, call.client, topic.name) if wanted else NO_OPERATIONS
    nodes = broker.nodes()
    there = [number for number in nodes if broker.is_there(number)]
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": id_of(topic),
        "partitions": [
            _partition(broker, index, nodes, there) for index in range(topic.partitions)
        ],
        "topic_authorized_operations": operations,
    }


def _partition(broker: AnyBroker, index: int, nodes: Sequence[int], there: Sequence[int]) -> Tree:
    leader = broker.leader
    is_led = leader is not None and leader in there
    return {
        "error_code": ErrorCode.none if is_led else ErrorCode.leader_not_available,
        "partition_index": index,
        "leader_id": leader if is_led else -1,
        "leader_epoch": broker.epoch if is_led else -1,
        "replica_nodes": nodes,
        "isr_nodes": there,
        "offline_replicas": [number for number in nodes if number not in there],
    }


API = KafkaApi(
    key=3,
    name="Metadata",
    first=0,
    last=12,
    flexible_from=9,
    handle=handle,
    notes=(
        "The Raft leader leads every partition, its term is the leader epoch, and all nodes are "
        "replicas; only nodes that are up are listed."
    ),
)
