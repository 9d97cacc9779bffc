"""Partitions go from group to group, and back, and tasks are cancelled in each phase of that:
nothing is lost, doubled, or in two places.
"""

from __future__ import annotations

from collections import Counter

import pytest

from samelog.placement.tasks import TaskState
from tests.placement.passing_world import PassingWorld

WORLDS = 150


def test_partitions_pass_with_all_that_is_known_of_them() -> None:
    ends: Counter[TaskState] = Counter()
    for seed in range(WORLDS):
        world = PassingWorld(seed)
        world.run()
        ends.update(world.ends)
    assert ends[TaskState.DONE] > WORLDS / 2, ends
    assert ends[TaskState.CANCELLED] > WORLDS / 10, ends


@pytest.mark.campaign
def test_many_partitions_pass() -> None:
    for seed in range(1_000, 21_000):
        PassingWorld(seed).run()
