"""Where the partitions of a new topic go: into group 0, on all nodes, or into data groups.

Invariant: a topic that asks for as many copies as there are nodes, or for nothing, is in group 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from samelog.kafka.broker import NOT_CONFIRMED, Broker
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.placement.tasks import PlacementRefused
from samelog.sequencer.admin.placement import Plan, placed_partitions, placed_topic
from samelog.sequencer.levels import GROUPS
from samelog.sequencer.state.commands import CreateTopicCommand
from samelog.sequencer.state.placement.commands import PlacePartitions, PlaceTopic
from samelog.sequencer.state.types import Topic

TRIES = 5
LONGEST_S = 60.0
"""No request may wait longer."""
_CODES = {
    "INVALID_REPLICATION_FACTOR": ErrorCode.invalid_replication_factor,
    "NO_MEMBER": ErrorCode.invalid_replication_factor,
}


def over_at_of(request: Any) -> float:
    """When the time of a request is over, by the clock of the event loop."""
    wait_s: float = min(LONGEST_S, max(0.0, request.timeout_ms / 1000))
    return asyncio.get_running_loop().time() + wait_s


def left_ms(over_at: float) -> int:
    """How much of it is left."""
    return max(0, round(1000 * (over_at - asyncio.get_running_loop().time())))


async def in_time(work: Awaitable[ApiError | None], over_at: float) -> ApiError | None:
    """Why something is not done, if it is not; what is not known by then may be done later."""
    try:
        async with asyncio.timeout_at(over_at):
            return await work
    except TimeoutError:
        return ApiError(ErrorCode.request_timed_out, NOT_CONFIRMED)


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

    def make() -> PlaceTopic:
        state, now_ms = broker.machine.state, broker.clock.wall_ms()
        return placed_topic(state, broker.may_hold, command, plan, now_ms)

    return await _place(broker, make)


async def place_more(
    broker: Broker, topic: Topic, partitions: int, by_hand: Plan | None
) -> ApiError | None:
    """Have a topic in data groups get more partitions; why it does not, if it does not."""

    def make() -> PlacePartitions:
        state, now_ms = broker.machine.state, broker.clock.wall_ms()
        wanted = state, broker.may_hold, topic, partitions
        return placed_partitions(*wanted, by_hand=by_hand, now_ms=now_ms)

    return await _place(broker, make)


async def _place(
    broker: Broker, make: Callable[[], PlaceTopic | PlacePartitions]
) -> ApiError | None:
    for left in reversed(range(TRIES)):
        try:
            await broker.propose(make())
        except PlacementRefused as error:
            code = _CODES.get(error.code, ErrorCode.invalid_replica_assignment)
            return ApiError(code, str(error))
        except ApiError as error:
            if error.code is not ErrorCode.not_controller or not left:
                return error
        else:
            return None
    return None
