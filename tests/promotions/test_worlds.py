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
BUSY_SEEDS = range(1, 31)
Mutant = Callable[[], AbstractContextManager[None]]
FOUND_IN: dict[Mutant, int] = {
    planted.promote_under_the_same_id: 1,
    planted.acknowledge_after_a_promotion: 172,
    planted.promote_beside_a_leader: 2,
    planted.begin_again_after_a_promotion: 1,
    planted.agree_to_everybody: 11,
    planted.stay_by_hearsay: 92,
}
"""Planted bugs, and the first world in which each shows."""
FOUND_WHERE_PROGRAMS_WRITE: dict[Mutant, int] = {
    planted.forget_producers_at_a_promotion: 130,
    planted.merge_from_anywhere: 7,
    planted.take_any_gap_after_a_promotion: 1,
    planted.leave_groups_behind: 4,
}
"""The same, of worlds in which programs write."""


@pytest.fixture(autouse=True)
def _soon() -> Iterator[None]:
    """Silence is long in a world of two minutes."""
    with patch.object(promoting, "HEARD_S", 3.0), patch.object(promoting, "SURELY_DOWN_S", 10.0):
        yield


@pytest.mark.usefixtures("simulates")
def test_worlds_keep_one_history_for_each_cluster() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        world = World(seed)
        world.run()
        seen["promoted"] += len(world.promoted)
        seen["superseded"] += world.superseded
        seen["refused"] += world.refusals
        seen["records"] += sum(map(len, world.acknowledged.values()))
    assert seen["promoted"] > len(SEEDS) / 8, seen
    assert seen["superseded"] > seen["promoted"] / 4, seen
    assert seen["refused"] > seen["promoted"], seen
    assert seen["records"] > 50 * len(SEEDS), seen


@pytest.mark.usefixtures("simulates")
def test_what_programs_write_is_there_once_and_a_data_group_goes_on() -> None:
    seen: Counter[str] = Counter()
    for seed in BUSY_SEEDS:
        world = World(seed, is_busy=True)
        world.run()
        seen["promoted"] += len(world.promoted)
        seen["sent"] += sum(each.acked for each in world.programs.everybody)
        seen["cannot go on"] += sum(each.refused > 0 for each in world.programs.sessions)
        seen["groups that went on"] += len(world.group.alone)
        seen["of the group"] += sum(map(len, world.group.acknowledged.values()))
    assert min(seen.values()) > 0, seen
    assert seen["sent"] > 50 * len(BUSY_SEEDS), seen


@pytest.mark.usefixtures("simulates")
def test_a_seed_is_one_world() -> None:
    first, second = World(3), World(3)
    first.run()
    second.run()
    assert first.histories == second.histories


@pytest.mark.usefixtures("simulates", "plants_bugs")
@pytest.mark.parametrize("mutant", FOUND_IN, ids=lambda mutant: mutant.__name__)
def test_planted_bugs_are_found(mutant: Mutant) -> None:
    World(FOUND_IN[mutant]).run()
    with mutant(), pytest.raises(Harm):
        World(FOUND_IN[mutant]).run()


@pytest.mark.usefixtures("simulates", "plants_bugs")
@pytest.mark.parametrize("mutant", FOUND_WHERE_PROGRAMS_WRITE, ids=lambda mutant: mutant.__name__)
def test_planted_bugs_are_found_where_programs_write(mutant: Mutant) -> None:
    seed = FOUND_WHERE_PROGRAMS_WRITE[mutant]
    World(seed, is_busy=True).run()
    with mutant(), pytest.raises(Harm):
        World(seed, is_busy=True).run()
