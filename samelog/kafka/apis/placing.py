"""Where the partitions of a new topic go: into group 0, on all nodes, or into data groups.

Invariant: a topic that asks for as many copies as there are nodes, or for nothing, is in group 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from samelog.kafka.broker import Broker
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.placement.members import MemberStates, PlacementLimits
from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.tasks import PlacementRefused
from samelog.placement.topics import TopicPlacement, place_by_hand, place_topic
from samelog.sequencer.levels import GROUPS
from samelog.sequencer.state.commands import CreateTopicCommand
from samelog.sequencer.state.placement.commands import PlaceTopic

TRIES = 5
BEGIN_S = 10.0
LOOK_S = 0.05
Plan = int | Sequence[Sequence[int]]
"""How many copies, or the nodes of each partition."""
_CODES = {
    "INVALID_REPLICATION_FACTOR": ErrorCode.invalid_replication_factor,
    "NO_MEMBER": ErrorCode.invalid_replication_factor,
}


async def until_begun(broker: Broker) -> None:
    """Wait until a new cluster has its feature level: nobody knows before whether it has groups."""
    async with asyncio.timeout(BEGIN_S):
        while not broker.machine.state.level:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)


def placement_of(broker: Broker, wanted: Any) -> Plan | None:
    """What a topic of CreateTopics asks for; None: to be in group 0."""
    nodes = broker.nodes()
    if broker.machine.state.level < GROUPS:
        return None
    if wanted.assignments:
        by_index = sorted(wanted.assignments, key=lambda each: each.partition_index)
        lists = [list(each.broker_ids) for each in by_index]
        return None if all(sorted(each) == nodes for each in lists) else lists
    copies = int(wanted.replication_factor)
    return None if copies == -1 or copies >= len(nodes) else copies


async def create_placed(broker: Broker, command: CreateTopicCommand, plan: Plan) -> ApiError | None:
    """Have a topic created in data groups; why it is not, if it is not."""
    for left in reversed(range(TRIES)):
        try:
            placed = _planned(broker, command.partitions, plan)
            await broker.propose(_command(broker, command, placed))
        except PlacementRefused as error:
            code = _CODES.get(error.code, ErrorCode.invalid_replica_assignment)
            return ApiError(code, str(error))
        except ApiError as error:
            if error.code is not ErrorCode.not_controller or not left:
                return error
        else:
            return None
    return None


def _planned(broker: Broker, partitions: int, plan: Plan) -> TopicPlacement:
    """Raises PlacementRefused."""
    state, limits = broker.machine.state, PlacementLimits()
    table = PlacementTable(state.placement, _members(broker))
    if not isinstance(plan, int):
        return place_by_hand(table, plan)
    states = MemberStates(table, limits, broker.clock.wall_ms())
    return place_topic(table, states, limits, partitions, plan)


def _members(broker: Broker) -> list[PlacedMember]:
    """All members, as this node knows them."""
    state, now_ms = broker.machine.state, broker.clock.wall_ms()
    return [
        PlacedMember(
            number,
            member.name,
            next((each.rack for each in state.listeners.get(number, ())), ""),
            state.maintenance.get(member.name, 0),
            None if broker.is_there(number) else now_ms,
        )
        for number, member in state.members.items()
    ]


def _command(broker: Broker, command: CreateTopicCommand, placed: TopicPlacement) -> PlaceTopic:
    return PlaceTopic(
        broker.machine.state.placement.version,
        command.topic_id,
        command.name,
        command.settings,
        command.at_ms,
        list(placed.new_groups),
        list(placed.groups),
    )
