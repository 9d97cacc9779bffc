"""Creates topics and partitions: in group 0, or in data groups that are planned for them.

Invariant: what is planned from a table that has changed meanwhile is planned again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from samelog.placement.defaults import EVERYWHERE
from samelog.sequencer.admin.placement import PlacementPlan
from samelog.sequencer.parts import PeerParts, RaftParts
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.placement import PlacePartitions, PlaceTopic
from samelog.sequencer.state.tables.topics import CreateTopicCommand

PLACE_S = 10.0


async def create(
    raft: RaftParts, peers: PeerParts, command: CreateTopicCommand, copies: int, longer_s: float = 0
) -> Any:
    """Create a topic with a goal of so many copies (EVERYWHERE: in group 0), or in the group of the
    one that it names. Returns the outcome. Raises PlacementRefused, TimeoutError.
    """
    if command.beside:
        return await place(raft, peers, lambda plan: plan.topic_beside(command), longer_s)
    if copies == EVERYWHERE:
        return await raft.proposer.propose(command, longer_s=longer_s)
    return await place(raft, peers, lambda plan: plan.topic(command, copies), longer_s)


async def place(
    raft: RaftParts,
    peers: PeerParts,
    make: Callable[[PlacementPlan], CreateTopicCommand | PlaceTopic | PlacePartitions],
    longer_s: float,
) -> Any:
    """Create partitions in data groups; each attempt plans them again. Returns the outcome. Raises
    PlacementRefused, TimeoutError.
    """
    loop = asyncio.get_running_loop()
    over_at = loop.time() + PLACE_S + longer_s
    while True:
        command = make(plan_now(raft, peers))
        outcome = await raft.proposer.propose(command, longer_s=longer_s)
        is_overtaken = isinstance(outcome, Rejection) and outcome.code == "PLACEMENT_MOVED"
        if not is_overtaken or loop.time() > over_at:
            return outcome


def plan_now(raft: RaftParts, peers: PeerParts) -> PlacementPlan:
    """Return a plan for the table as it is now."""
    state, clock = raft.replica.machine.state, raft.proposer.clock
    now = clock.now()
    return PlacementPlan(state, lambda each: peers.may_hold(each, state, now), clock.wall_ms())
