"""ElectLeaders (43): the first of a partition's replicas shall lead it.

Groups do that by themselves. What this adds is that it is tried again where an operator cancelled
it, and that the answer waits for it.

Invariant: Raft elects, so no leader ever lacks what was acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from samelog.format.steps import StepWork
from samelog.kafka.access.acls import AclOperation
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import answer_topics, no_partition
from samelog.kafka.broker import Broker
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.placement.table import change, error_unless
from samelog.placement.reassigning import elect
from samelog.placement.values import METADATA
from samelog.runtime.slices import paced
from samelog.sequencer.state.tables.topics import Topic

PREFERRED = 0
LONGEST_S = 30.0
LOOK_S = 0.05


class ElectLeadersPartition(Entity, frozen=True):
    """What became of one election."""

    partition_id: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class ElectLeadersTopic(Entity, frozen=True):
    """Those of a topic."""

    topic: str
    partition_result: Sequence[ElectLeadersPartition]


class ElectLeadersResponse(ResponseBody, frozen=True):
    """The response of `elect_leaders`."""

    error_code: ErrorCode
    replica_election_results: Sequence[ElectLeadersTopic] = ()


@kafka_api(
    43,
    "ElectLeaders",
    0,
    2,
    flexible_from=2,
    notes="Partitions of data groups. The Raft leader leads those that are on every node.",
)
async def elect_leaders(call: NodeCall, request: Any) -> ElectLeadersResponse:
    """Says of each partition whether the preferred replica leads; without a list, of those that
    another one led.
    """
    error = error_unless(call, AclOperation.ALTER)
    if error is not ErrorCode.none:
        return ElectLeadersResponse(error)
    broker, needed = call.broker, set[int]()
    topics = [*_asked(broker, request.topic_partitions)]
    if getattr(request, "election_type", PREFERRED) == PREFERRED:
        for name, indexes in topics:
            needed.update(await paced(_needed(broker, name, indexes)))
        await _elect(broker, needed, min(LONGEST_S, request.timeout_ms / 1000))
    found = await answer_topics(topics, partial(_outcome, broker, needed), _refuse)
    return ElectLeadersResponse(
        error, [ElectLeadersTopic(each.name, each.partitions) for each in found.topics]
    )


def _asked(broker: Broker, asked: Sequence[Any] | None) -> Iterator[tuple[str, Sequence[int]]]:
    """Topics with partitions; where none is named: those that another replica leads."""
    if asked is not None:
        yield from ((each.topic, each.partitions) for each in asked)
        return
    for topic in broker.topics():
        found = [index for index in range(topic.partitions) if _others_lead(broker, topic, index)]
        if found:
            yield topic.name, found


def _is_placed(broker: Broker, topic: Topic, index: int) -> bool:
    """Whether a data group has it; a view goes with its base."""
    if not topic.is_placed or broker.views.of(topic) is not None:
        return False
    return broker.placed.group_of(topic, index) != METADATA


def _others_lead(broker: Broker, topic: Topic, index: int) -> bool:
    if not _is_placed(broker, topic, index):
        return False
    return broker.leader_of(topic, index) != broker.nodes_of(topic, index)[0]


def _needed(broker: Broker, name: str, indexes: Iterable[int]) -> StepWork[set[int]]:
    """Groups that the preferred replica does not lead."""
    topic, found = broker.topic(name), set[int]()
    if topic is None:
        return found
    for index in indexes:
        if 0 <= index < topic.partitions and _others_lead(broker, topic, index):
            found.add(broker.placed.group_of(topic, index))
        yield
    return found


async def _elect(broker: Broker, groups: Collection[int], wait_s: float) -> None:
    """What does not come to pass meanwhile, the answer says."""
    if not groups:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await change(broker, lambda table: elect(table, groups))
            while not all(_is_led(broker, each) for each in groups):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)


def _is_led(broker: Broker, number: int) -> bool:
    """Whether the preferred replica of a group leads it."""
    group, leader = broker.machine.state.placement.groups.get(number), None
    if group is not None:
        leader = broker.parts.data_groups.leader(number)
    return group is None or (leader is not None and leader[1] == group.preferred)


async def _outcome(
    broker: Broker, needed: Collection[int], name: str, index: int
) -> ElectLeadersPartition:
    """Raises ApiError."""
    topic = broker.topic(name)
    if topic is None or broker.partition_number(name, index) is None:
        raise no_partition(name, index)
    leader = broker.leader_of(topic, index)
    if leader is None:
        raise ApiError(ErrorCode.eligible_leaders_not_available, "Raft has elected nobody yet")
    is_alone = not _is_placed(broker, topic, index)
    if is_alone or broker.placed.group_of(topic, index) not in needed:
        raise ApiError(ErrorCode.election_not_needed, f"node {leader} leads it")
    if _others_lead(broker, topic, index):
        first = broker.nodes_of(topic, index)[0]
        text = f"node {leader} leads: node {first} is away, or lacks something yet"
        raise ApiError(ErrorCode.preferred_leader_not_available, text)
    return ElectLeadersPartition(index)


def _refuse(index: int, error: ApiError) -> ElectLeadersPartition:
    return ElectLeadersPartition(index, error.code, error.message)
