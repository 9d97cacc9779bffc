"""Members come, go, are drained, replaced and wiped, tasks are cancelled in each phase: every group
has its copies all the while, and in the end all is even.
"""

from __future__ import annotations

from collections import Counter

import pytest

from samelog.placement.tasks import TaskKind
from tests.placement.world import World

WORLDS = 60


def test_worlds_keep_their_promises() -> None:
    started: Counter[TaskKind] = Counter()
    for seed in range(1, WORLDS + 1):
        world = World(seed)
        world.run()
        started += world.started
    assert set(started) == set(TaskKind), "every kind of task has to occur"


@pytest.mark.campaign
def test_many_worlds_keep_their_promises() -> None:
    for seed in range(1, 2_001):
        World(seed).run()
