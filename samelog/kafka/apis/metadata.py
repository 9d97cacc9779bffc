"""Metadata, DescribeCluster: which nodes there are, where, and who leads what."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import filterfalse
from typing import Any, TypeVar

from samelog.kafka.any_broker import AnyBroker
from samelog.kafka.api import AnyCall, kafka_api
from samelog.kafka.apis.checks import (
    NO_OPERATIONS,
    Turn,
    answer_each,
    check_name,
    cluster_operations,
    denied,
    id_of,
    topic_operations,
    unknown,
)
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.parts import Parts
from samelog.sequencer.state.tables.topics import Topic

AT_ONCE = 100
"""Partitions of a topic that one step describes."""
NULL_NAME_FROM = 12
"""From this version on the name of a topic that was asked for by id may be null."""


class MetadataResponseBroker(Entity, frozen=True):
    """A node as the client reaches it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class MetadataResponsePartition(Entity, frozen=True):
    """Who leads a partition, and who has it."""

    partition_index: int
    error_code: ErrorCode
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: Sequence[int]


class MetadataResponseTopic(Entity, frozen=True):
    """A topic with its partitions."""

    name: str | None
    topic_id: uuid.UUID | None
    error_code: ErrorCode = ErrorCode.none
    partitions: Sequence[MetadataResponsePartition] = ()
    topic_authorized_operations: int = NO_OPERATIONS
    is_internal: bool = False


class MetadataResponse(ResponseBody, frozen=True):
    """The response of `metadata`."""

    brokers: Sequence[MetadataResponseBroker]
    cluster_id: str
    controller_id: int
    topics: Sequence[MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: ErrorCode = ErrorCode.none


@kafka_api(
    3,
    "Metadata",
    0,
    13,
    flexible_from=9,
    parts=Parts(("topics",), ("topics",)),
    notes="The Raft leader of a partition's group leads it, its term is the leader epoch; nodes "
    "that are down are listed for 10 seconds.",
)
async def metadata(call: AnyCall, request: Any) -> MetadataResponse:
    """Which nodes there are, where, and who leads what.

    A partition is led by the Raft leader of its group, in the epoch of its term, and all nodes of
    the group that are up are in sync replicas. Addresses are those of the listener that the client
    came by. A topic that is asked for by name and is not there is made, if the client wants that,
    the configuration allows it, and the client may publish to it. The answer waits for the word of
    a leader, while one is elected, too.
    """
    broker, listener = call.broker, call.client.listener
    is_current = await broker.confirm_leader()
    topics = await _topics(call, request, is_current=is_current)
    wanted = getattr(request, "include_cluster_authorized_operations", False)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(*end) for end in broker.endpoints(listener)],
        cluster_id=broker.cluster,
        controller_id=broker.controller(listener),
        topics=topics,
        cluster_authorized_operations=(
            cluster_operations(broker, call.client) if wanted else NO_OPERATIONS
        ),
    )


async def _topics(call: AnyCall, request: Any, *, is_current: bool) -> list[MetadataResponseTopic]:
    """What is said of the topics that were asked for, or of all that the client may know of."""
    broker, asked = call.broker, request.topics
    if asked is None or (call.version == 0 and not asked):
        turn, found = Turn(), []
        for topic in [*broker.listed()]:
            await turn.give_way()
            if broker.may_describe(call.client, topic.name):
                found.append(await _described(call, topic, request, turn))
        return found
    turn = Turn()

    async def describe(asked: Any) -> MetadataResponseTopic:
        topic = await _find(call, asked, request, is_current=is_current)
        return await _described(call, topic, request, turn)

    def refuse(asked: Any, error: ApiError) -> MetadataResponseTopic:
        topic_id = getattr(asked, "topic_id", None)
        may_be_null = topic_id is None or call.version >= NULL_NAME_FROM
        return MetadataResponseTopic(asked.name if may_be_null else "", topic_id, error.code)

    return await answer_each(asked, describe, refuse, turn=turn)


async def _find(call: AnyCall, asked: Any, request: Any, *, is_current: bool) -> Topic:
    """The topic, made if it may be. Raises ApiError."""
    broker, topic_id = call.broker, getattr(asked, "topic_id", None)
    if topic_id is not None:
        topic = _look_up(broker, topic_id, is_current=is_current)
        if topic is None or not broker.may_describe(call.client, topic.name):
            raise ApiError(ErrorCode.unknown_topic_id, f"no topic has the id {topic_id}")
        return topic
    name = check_name(asked.name or "")
    if not broker.may_describe(call.client, name):
        raise denied(name)
    topic = _look_up(broker, name, is_current=is_current)
    if topic is None and _may_create(call, name, request):
        await _create(broker, name)
        topic = broker.topic(name)
    if topic is None:
        raise unknown(name)
    return topic


def _look_up(broker: AnyBroker, key: str | uuid.UUID, *, is_current: bool) -> Topic | None:
    topic = broker.shown(key)
    if topic is None and not is_current:  # it might only be new
        raise ApiError(ErrorCode.leader_not_available, "no leader has answered: ask again")
    return topic


def _may_create(call: AnyCall, name: str, request: Any) -> bool:
    broker = call.broker
    wanted = getattr(request, "allow_auto_topic_creation", True)
    may = broker.may_write(call.client, name) or broker.may_create(call.client, name)
    return bool(wanted and broker.auto_creates and may)


async def _create(broker: AnyBroker, name: str) -> None:
    try:
        await broker.create_by_default(name)
    except ApiError as error:
        if error.code is not ErrorCode.topic_already_exists:  # somebody else was faster
            raise


async def _described(
    call: AnyCall, topic: Topic, request: Any, turn: Turn
) -> MetadataResponseTopic:
    broker = call.broker
    partitions: list[MetadataResponsePartition] = []
    for start in range(0, topic.partitions, AT_ONCE):
        await turn.give_way()
        indexes = range(start, min(topic.partitions, start + AT_ONCE))
        partitions += partitions_of(broker, topic, indexes, MetadataResponsePartition)
    wanted = getattr(request, "include_topic_authorized_operations", False)
    return MetadataResponseTopic(
        topic.name,
        id_of(topic),
        partitions=partitions,
        topic_authorized_operations=(
            topic_operations(broker, call.client, topic.name) if wanted else NO_OPERATIONS
        ),
        is_internal=topic.is_generated,
    )


PartitionT = TypeVar("PartitionT", bound=MetadataResponsePartition)


def partitions_of(
    broker: AnyBroker, topic: Topic, indexes: Iterable[int], kind: type[PartitionT]
) -> list[PartitionT]:
    """Partitions of a topic. Those that are in no data group have one leader."""
    if topic.is_placed:
        return [next(_alike(broker, topic, [index], kind)) for index in indexes]
    return list(_alike(broker, topic, indexes, kind))


def _alike(
    broker: AnyBroker, topic: Topic, indexes: Iterable[int], kind: type[PartitionT]
) -> Iterator[PartitionT]:
    """Partitions that have one leader, and are on the same nodes."""
    first, *rest = [*indexes] or [0]
    nodes = broker.nodes_of(topic, first)
    there = [number for number in nodes if broker.is_there(number)]
    whole = [*filterfalse(frozenset(broker.behind(topic, first)).__contains__, there)]
    known = broker.leader_of(topic, first)
    error, leader, leader_epoch = ErrorCode.leader_not_available, -1, -1
    if known is not None and known in there:
        error, leader, leader_epoch = ErrorCode.none, known, broker.epoch_of(topic, first)
    offline = [number for number in nodes if number not in there]
    for index in (first, *rest):
        yield kind(
            index,
            error,
            leader,
            leader_epoch,
            replica_nodes=nodes,
            isr_nodes=whole,
            offline_replicas=offline,
        )


BROKERS = 1


class DescribeClusterResponseBroker(Entity, frozen=True):
    """A node as the client reaches it."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


class DescribeClusterResponse(ResponseBody, frozen=True):
    """The response of `describe_cluster`."""

    cluster_id: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    controller_id: int = -1
    brokers: Sequence[DescribeClusterResponseBroker] = ()
    cluster_authorized_operations: int = NO_OPERATIONS
    endpoint_type: int = BROKERS


@kafka_api(
    60,
    "DescribeCluster",
    0,
    2,
    flexible_from=0,
    notes="Brokers only. There are no separate controllers.",
)
def describe_cluster(call: AnyCall, request: Any) -> DescribeClusterResponse:
    """The nodes, the controller, the cluster's name."""
    broker, listener = call.broker, call.client.listener
    kind = getattr(request, "endpoint_type", BROKERS)
    if kind != BROKERS:
        return DescribeClusterResponse(
            broker.cluster,
            ErrorCode.unsupported_endpoint_type,
            "clients only ever talk to brokers here",
            endpoint_type=kind,
        )
    wanted = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        broker.cluster,
        controller_id=broker.controller(listener),
        brokers=[DescribeClusterResponseBroker(*end) for end in broker.endpoints(listener)],
        cluster_authorized_operations=(
            cluster_operations(broker, call.client) if wanted else NO_OPERATIONS
        ),
    )
