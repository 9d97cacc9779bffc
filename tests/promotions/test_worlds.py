"""Promotions in simulated worlds: never two histories of one cluster; planted bugs are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from unittest.mock import patch

import pytest

from samelog.sequencer.admin.siting import promoting
from tests.mutants import sites as planted
from tests.promotions.harm import Harm
from tests.promotions.world import World

SEEDS = range(1, 41)
FOUND_IN: dict[Callable[[], AbstractContextManager[None]], int] = {
    planted.promote_under_the_same_id: 1,
    planted.acknowledge_after_a_promotion: 90,
    planted.promote_beside_a_leader: 2,
    planted.begin_again_after_a_promotion: 1,
    planted.agree_to_everybody: 11,
    planted.stay_by_hearsay: 71,
    planted.forget_producers_at_a_promotion: 1,
    planted.merge_from_anywhere: 1,
    planted.take_any_gap_after_a_promotion: 1,
    planted.leave_groups_behind: 1,
}
"""Planted bugs, and the first world in which each shows."""


@pytest.fixture(autouse=True)
def _soon() -> Iterator[None]:
    """Silence is long in a world of two minutes."""
    with patch.object(promoting, "HEARD_S", 3.0), patch.object(promoting, "SURELY_DOWN_S", 10.0):
        yield


def test_worlds_keep_one_history_for_each_cluster() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        world = World(seed)
        world.run()
        seen["promoted"] += len(world.promoted)
        seen["superseded"] += world.superseded
        seen["refused"] += world.refusals
        seen["records"] += sum(map(len, world.acknowledged.values()))
        seen["sent"] += sum(each.acked for each in world.programs.everybody)
        seen["not taken"] += sum(each.refused for each in world.programs.sessions)
        seen["alone"] += len(world.group.alone)
    assert seen["promoted"] > len(SEEDS) / 8, seen
    assert seen["superseded"] > seen["promoted"] / 4, seen
    assert seen["refused"] > seen["promoted"], seen
    assert seen["records"] > 50 * len(SEEDS), seen
    assert seen["sent"] > 50 * len(SEEDS), seen
    assert min(seen["not taken"], seen["alone"]) > 0, seen


def test_a_seed_is_one_world() -> None:
    first, second = World(3), World(3)
    first.run()
    second.run()
    assert first.histories == second.histories


@pytest.mark.parametrize("mutant", FOUND_IN, ids=lambda mutant: mutant.__name__)
def test_planted_bugs_are_found(mutant: Callable[[], AbstractContextManager[None]]) -> None:
    World(FOUND_IN[mutant]).run()
    with mutant(), pytest.raises(Harm):
        World(FOUND_IN[mutant]).run()
