"""What tools ask about the cluster as a whole: DescribeLogDirs, DescribeQuorum,
ListConfigResources.

Invariant: a node tells what it knows itself; what it does not know is -1 or left out.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from samelog.format.steps import mapped
from samelog.kafka.access.acls import AclOperation
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import answer_each, no_partition
from samelog.kafka.apis.configs import CLIENT_METRICS, ResourceType
from samelog.kafka.broker import Broker
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody, TopicAnswers
from samelog.kafka.parts import Parts
from samelog.runtime.slices import paced
from samelog.sequencer.state.tables.topics import Topic

METADATA_TOPIC = "__cluster_metadata"
"""Kafka's name of what is Raft's log here."""
UNKNOWN = -1


def _error_unless(call: NodeCall, operation: AclOperation) -> ErrorCode:
    allowed = call.broker.may(call.client, operation)
    return ErrorCode.none if allowed else ErrorCode.cluster_authorization_failed


# --- log directories ----------------------------------------------------------------------------


class DescribeLogDirsPartition(Entity, frozen=True):
    """What this node has of a partition; `offset_lag`: committed records that it still lacks."""

    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool = False


class DescribeLogDirsResult(Entity, frozen=True):
    """One directory."""

    log_dir: str
    topics: Sequence[TopicAnswers[DescribeLogDirsPartition]]
    total_bytes: int
    usable_bytes: int
    error_code: ErrorCode = ErrorCode.none


class DescribeLogDirsResponse(ResponseBody, frozen=True):
    """The response of `describe_log_dirs`."""

    error_code: ErrorCode
    results: Sequence[DescribeLogDirsResult] = ()


@kafka_api(
    35,
    "DescribeLogDirs",
    1,
    4,
    flexible_from=2,
    notes="The data directory of the node that is asked, with its merged logs.",
)
async def describe_log_dirs(call: NodeCall, request: Any) -> DescribeLogDirsResponse:
    """How large each partition is on this node."""
    broker, error = call.broker, _error_unless(call, AclOperation.DESCRIBE)
    if error is not ErrorCode.none:
        return DescribeLogDirsResponse(error)
    found = await answer_each(_asked(broker, request.topics), _topic_size(broker), _skip)
    directory = broker.config.data
    disk = os.statvfs(directory)
    topics = [each for each in found if each is not None and each.partitions]
    result = DescribeLogDirsResult(
        directory, topics, disk.f_frsize * disk.f_blocks, disk.f_frsize * disk.f_bavail
    )
    return DescribeLogDirsResponse(error, [result])


def _asked(broker: Broker, topics: Any) -> list[tuple[str, Sequence[int]]]:
    if topics is None:
        return [(topic.name, range(topic.partitions)) for topic in broker.topics()]
    return [(asked.topic, asked.partitions) for asked in topics]


def _topic_size(broker: Broker) -> Any:
    async def size(asked: tuple[str, Sequence[int]]) -> TopicAnswers[DescribeLogDirsPartition]:
        name, indexes = asked
        topic = broker.topic(name)
        if topic is None or broker.views.of(topic) is not None:  # a view has no files
            return TopicAnswers(name, [])
        found = await paced(mapped(partial(_size, broker, topic), indexes))
        return TopicAnswers(name, [each for each in found if each is not None])

    return size


def _skip(_: tuple[str, Sequence[int]], __: ApiError) -> None:
    """What cannot be read is not in the directory."""


def _size(broker: Broker, topic: Topic, index: int) -> DescribeLogDirsPartition | None:
    """None: this node has nothing of it."""
    if not 0 <= index < topic.partitions:
        return None
    try:
        log = broker.files_of(topic, index).log
        lag = max(0, broker.committed(topic, index) - log.next_offset)
    except ApiError:  # a data group has it, on other nodes
        return None
    return DescribeLogDirsPartition(index, sum(each.size for each in log.segments()), lag)


# --- the quorum ---------------------------------------------------------------------------------


class DescribeQuorumReplica(Entity, frozen=True):
    """Where a member's Raft log ends, as far as this node knows."""

    replica_id: int
    log_end_offset: int
    replica_directory_id: uuid.UUID | None = None


class DescribeQuorumPartition(Entity, frozen=True):
    """The state of Raft's log."""

    partition_index: int
    error_code: ErrorCode
    error_message: str | None = None
    leader_id: int = UNKNOWN
    leader_epoch: int = UNKNOWN
    high_watermark: int = UNKNOWN
    current_voters: Sequence[DescribeQuorumReplica] = ()
    observers: Sequence[DescribeQuorumReplica] = ()


class DescribeQuorumTopic(Entity, frozen=True):
    """Of the one topic that has a quorum."""

    topic_name: str
    partitions: Sequence[DescribeQuorumPartition]


class DescribeQuorumListener(Entity, frozen=True):
    """Where clients reach a node."""

    name: str
    host: str
    port: int


class DescribeQuorumNode(Entity, frozen=True):
    """A node and its listener for the client."""

    node_id: int
    listeners: Sequence[DescribeQuorumListener]


class DescribeQuorumResponse(ResponseBody, frozen=True):
    """The response of `describe_quorum`."""

    error_code: ErrorCode
    topics: Sequence[DescribeQuorumTopic] = ()
    nodes: Sequence[DescribeQuorumNode] = ()
    error_message: str | None = None


@kafka_api(
    55,
    "DescribeQuorum",
    0,
    2,
    flexible_from=0,
    parts=Parts(("topics", "partitions"), ("topics", "partitions")),
    notes="Raft's log, as `__cluster_metadata`. A follower knows the positions of other "
    "nodes from their reports, one each second.",
)
def describe_quorum(call: NodeCall, request: Any) -> DescribeQuorumResponse:
    """Who votes, who leads, and how far everybody is. Kafka's tools ask any node."""
    broker, error = call.broker, _error_unless(call, AclOperation.DESCRIBE)
    if error is not ErrorCode.none:
        return DescribeQuorumResponse(error, error_message="for administrators only")
    topics = [
        DescribeQuorumTopic(
            topic.topic_name,
            [_quorum(broker, topic.topic_name, each.partition_index) for each in topic.partitions],
        )
        for topic in request.topics
    ]
    listener = call.client.listener
    name = listener.upper()  # Kafka's clients take no other
    nodes = [
        DescribeQuorumNode(end.number, [DescribeQuorumListener(name, end.host, end.port)])
        for end in broker.endpoints(listener)
    ]
    return DescribeQuorumResponse(error, topics, nodes)


def _quorum(broker: Broker, topic: str, index: int) -> DescribeQuorumPartition:
    if (topic, index) != (METADATA_TOPIC, 0):
        error = no_partition(topic, index)
        return DescribeQuorumPartition(index, error.code, error.message)
    raft = broker.parts.raft.group.raft
    members = broker.parts.peers.members.all
    voters = [number for number in broker.nodes() if members[number].voter]
    learners = [number for number in broker.nodes() if not members[number].voter]
    ends = _log_ends(broker)
    return DescribeQuorumPartition(
        index,
        ErrorCode.none,
        leader_id=UNKNOWN if raft.leader is None else raft.leader,
        leader_epoch=raft.term,
        high_watermark=raft.commit_index,
        current_voters=_replicas(ends, voters),
        observers=_replicas(ends, learners),
    )


def _replicas(ends: Mapping[int, int], numbers: Iterable[int]) -> list[DescribeQuorumReplica]:
    return [DescribeQuorumReplica(number, ends[number]) for number in numbers]


def _log_ends(broker: Broker) -> dict[int, int]:
    """Where members are. Nobody is further than the leader."""
    leader, ends = broker.leader, {number: _log_end(broker, number) for number in broker.nodes()}
    if leader in ends:
        ends[leader] = max(ends.values())
    return ends


def _log_end(broker: Broker, number: int) -> int:
    """What a member has at least: who does not lead knows what it says of itself."""
    raft = broker.parts.raft.group.raft
    if number == broker.number:
        return raft.last_index
    if (known := raft.progress(number)) is not None:
        return known.match
    said, _ = broker.parts.peers.presence.said(number, broker.clock.now())
    return said.applied_index or UNKNOWN


# --- what has settings --------------------------------------------------------------------------


class ConfigResourceName(Entity, frozen=True):
    """Something that has settings."""

    resource_name: str
    resource_type: int


class ListConfigResourcesResponse(ResponseBody, frozen=True):
    """The response of `list_config_resources`."""

    error_code: ErrorCode
    config_resources: Sequence[ConfigResourceName] = ()


@kafka_api(
    74,
    "ListConfigResources",
    0,
    1,
    flexible_from=0,
    notes="Topics, brokers, and groups that have settings. There are no client metrics.",
)
def list_config_resources(call: NodeCall, request: Any) -> ListConfigResourcesResponse:
    """What has settings. Version 0 asks for client metrics only."""
    error = _error_unless(call, AclOperation.DESCRIBE_CONFIGS)
    if error is not ErrorCode.none:
        return ListConfigResourcesResponse(error)
    served = {*ResourceType, CLIENT_METRICS}
    kinds = set(getattr(request, "resource_types", (CLIENT_METRICS,))) or served
    if kinds - served:
        return ListConfigResourcesResponse(ErrorCode.unsupported_version)
    named = {
        ResourceType.TOPIC: sorted(topic.name for topic in call.broker.listed()),
        ResourceType.BROKER: list(map(str, call.broker.nodes())),
        ResourceType.GROUP: call.broker.groups_with_settings(),
    }
    return ListConfigResourcesResponse(
        error,
        [ConfigResourceName(name, kind) for kind in named if kind in kinds for name in named[kind]],
    )
