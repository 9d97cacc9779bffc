"""Members come, go, are drained, replaced and wiped, tasks are cancelled in each phase: every group
has its copies all the while, and in the end all is even.
"""

from __future__ import annotations

from collections import Counter

import pytest

from samelog.placement.tasks import TaskKind
from tests.placement.world import Phase, World

WORLDS = 60
DEATHS = 0.4
"""So often the leader of group 0 dies when a task comes to another phase."""


def test_worlds_keep_their_promises() -> None:
    started: Counter[TaskKind] = Counter()
    for seed in range(1, WORLDS + 1):
        world = World(seed)
        world.run()
        started += world.started
    assert set(started) == set(TaskKind), "every kind of task has to occur"


def test_leaders_of_group_0_die_in_every_phase_of_every_task() -> None:
    seen: set[Phase] = set()
    died_in: set[Phase] = set()
    for seed in range(1, WORLDS + 1):
        world = World(seed, DEATHS)
        world.run()
        seen |= world.seen
        died_in |= world.died_in
    assert {kind for kind, _, _ in died_in} == set(TaskKind)
    assert died_in == seen, "in none of these phases a leader died"


@pytest.mark.campaign
def test_many_worlds_keep_their_promises() -> None:
    for seed in range(1, 2_001):
        World(seed).run()
        World(seed, DEATHS).run()
