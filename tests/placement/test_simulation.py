"""Members come, go, are drained, replaced and wiped, tasks are cancelled in each phase: every group
has its copies all the while, and in the end all is even.
"""

from __future__ import annotations

from collections import Counter

import pytest

from samelog.placement.tasks import Action, TaskKind, TaskState
from tests.placement.world import Phase, World

WORLDS = 60
SCARCE_WORLDS = 60
DEADLY_WORLDS, DEATHS = range(100, 180), 0.2
OVER = {TaskState.DONE, TaskState.CANCELLED}


@pytest.mark.sample
@pytest.mark.usefixtures("simulates")
def test_worlds_keep_their_promises() -> None:
    started: Counter[TaskKind] = Counter()
    for seed in range(1, WORLDS + 1):
        world = World(seed)
        world.run()
        started += world.started
    assert set(started) == set(TaskKind), "every kind of task has to occur"


@pytest.mark.usefixtures("simulates")
def test_goals_beyond_hosts_and_dead_members_block_nothing() -> None:
    """Topics want up to 7 copies on 1 to 9 hosts, members die with all they have, and operators
    delete lost topics: every dead member can be removed in the end, and nothing is left to do.
    """
    for seed in range(1, SCARCE_WORLDS + 1):
        World(seed, is_scarce=True).run()


@pytest.mark.usefixtures("simulates")
def test_leaders_of_group_0_die_in_every_phase_of_every_task() -> None:
    died_in: set[Phase] = set()
    for seed in DEADLY_WORLDS:
        world = World(seed, DEATHS)
        world.run()
        died_in |= world.died_in
    assert {kind for kind, _, _ in died_in} == set(TaskKind)
    assert {state for _, state, _ in died_in} == set(TaskState) - OVER
    assert {action for _, _, action in died_in} == {"", *(each.name for each in Action)}


@pytest.mark.usefixtures("simulates")
@pytest.mark.campaign
def test_many_worlds_keep_their_promises() -> None:
    for seed in range(1, 2_001):
        World(seed).run()
        World(seed, DEATHS).run()
        World(seed, is_scarce=True).run()
