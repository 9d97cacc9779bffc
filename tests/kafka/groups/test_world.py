"""Consumers come, leave and die, leaders change, answers are lost: the group's promises hold."""

from __future__ import annotations

import pytest

from samelog.sequencer.state.tables.groups import Phase
from tests.kafka.groups.world import GROUP, REBALANCE_S, SESSION_S, World

SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_promises_hold_in_a_random_life(seed: int) -> None:
    world = World(seed)
    for _ in range(3):
        world.add()
    world.fault()
    world.run(120)
    world.faults = False
    if not world.live():
        world.add()
    assert world.run(SESSION_S + 2 * REBALANCE_S + 5, world.is_settled), f"seed {seed}: not settled"
    world.checker.nothing_lost()
    assert world.checker.commits


def test_a_leader_change_forces_nobody_to_join_again() -> None:
    world = World(1, faults=False)
    consumers = [world.add() for _ in range(4)]
    assert world.run(30, world.is_settled)
    before = (world.machine.state.groups.by_id[GROUP].generation, [c.joins for c in consumers])
    world.depose()
    world.run(3 * SESSION_S)
    group = world.machine.state.groups.by_id[GROUP]
    assert (group.generation, [c.joins for c in consumers]) == before
    assert group.phase == Phase.STABLE


def test_a_consumer_that_dies_is_replaced_after_its_session() -> None:
    world = World(2, faults=False)
    consumers = [world.add() for _ in range(3)]
    assert world.run(30, world.is_settled)
    consumers[0].alive = False
    assert not world.run(SESSION_S / 2, world.is_settled)
    assert world.run(SESSION_S + REBALANCE_S, world.is_settled)
