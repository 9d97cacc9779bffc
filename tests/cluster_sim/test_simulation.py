"""A slice of the simulated worlds. More: `python -m tests.cluster_sim`."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from samelog.replicator.pull.repair_pull import RepairPull
from samelog.sequencer.cluster import peers
from samelog.wire import member_queues
from tests.cluster_sim.cut_leaders import cutting
from tests.cluster_sim.forgetting import forgetting
from tests.cluster_sim.mutants import Mutant
from tests.cluster_sim.options import converting, from_seed, many_groups
from tests.cluster_sim.recreation import recreating, recreating_in_groups
from tests.cluster_sim.rot import rotting
from tests.cluster_sim.run import SimulationFailed, run_options, run_seed, run_world
from tests.cluster_sim.shared_connections import sharing
from tests.cluster_sim.stalled_groups import stalling
from tests.cluster_sim.world import World
from tests.mutants.deciding import wait_for_what_is_forgotten
from tests.mutants.keeping import lead_without_group_0
from tests.mutants.publisher_damage import (
    go_on_before_it_is_merged,
    let_newer_runs_pass,
    send_the_rest_again,
    stop_at_damage,
)
from tests.mutants.push_sessions import one_session_ends_all
from tests.mutants.recreation import count_from_the_start_of_files, forget_unmerged_bytes
from tests.mutants.run_ends import one_group_holds_up_all
from tests.tiers import sampled

SHORT_S = 2.0
"""Of faults: five times as many worlds for the same time."""
LONG_ENOUGH_S = 8.0
"""For groups to be made, and members to come and go."""


LONG_AWAY: dict[str, Any] = {
    "nodes": 5,
    "replicas": 3,
    "data_groups": 8,
    "kinds": ("kill", "kill", "kill_all", "slow_network"),
    "restart_s": 6.0,
    "safety_s": 20.0,
    "fault_every_s": 0.7,
    "deaths_at_tasks": 0.0,
    "producers": 2,
    "stagers": 1,
    "resets": (),
    "changes": (),
}
"""Of worlds whose members are away for long, and are started at once."""


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize("first", sampled(range(1, 9, 4), 5))
def test_worlds_hold(first: int) -> None:
    results = [run_seed(seed) for seed in range(first, first + 4)]
    assert sum(result.acknowledged for result in results) > 0


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize("first", sampled(range(101, 137, 12), 113, usual=()))
def test_short_worlds_hold(first: int) -> None:
    options = [replace(from_seed(seed), safety_s=SHORT_S) for seed in range(first, first + 12)]
    results = [run_options(option) for option in options]
    assert sum(result.acknowledged for result in results) > 0


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize(
    "seed", [49, 54, 59, 79, 196, 319, 441, 201_351, 77_000_007, 880_000_147, 880_000_673]
)
def test_worlds_that_did_not_hold_once(seed: int) -> None:
    """In 880000147 a founder got an empty disk after all other founders had been removed. In the
    last one a node acknowledged an entry after a restart whose bytes a failed sync had lost.
    """
    run_seed(seed)


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize("seed", [5, 30])
def test_a_seed_is_one_world_to_the_byte(seed: int) -> None:
    """Also in another process, where sets of strings have another order than in this one."""
    script = f"from tests.cluster_sim.run import run_seed; print(run_seed({seed}).digest)"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == run_seed(seed).digest


@pytest.mark.usefixtures("simulates")
@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", range(10_000, 12_000, 100))
def test_many_worlds_hold(first: int) -> None:
    for seed in range(first, first + 100):
        run_seed(seed)


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize("seeds", [(1, 112, 910_000_935), (134, 145, 77_000_004, 1_910_000_002)])
def test_worlds_hold_in_which_topics_are_created_again(seeds: tuple[int, ...]) -> None:
    worlds = [World(recreating(seed)) for seed in seeds]
    assert sum(run_world(world).acknowledged for world in worlds) > 0
    assert sum(world.recreation.deleted for world in worlds) > 0


@pytest.mark.usefixtures("simulates")
def test_worlds_hold_in_which_topics_are_deleted_on_their_way_into_groups() -> None:
    """In 47 a node died while it removed a directory; in 59 a run stayed that had carried held
    records, and in 96 one whose held records a later run had carried. In 15 records that continue
    waited for their writer's next run.
    """
    worlds = [World(recreating_in_groups(seed)) for seed in (15, 44, 47, 59, 96)]
    assert sum(run_world(world).converted for world in worlds) > 0
    assert sum(world.recreation.deleted for world in worlds) > 0


@pytest.mark.usefixtures("simulates")
@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", range(101, 501, 50))
def test_more_worlds_hold_in_which_topics_are_deleted_on_their_way_into_groups(first: int) -> None:
    for seed in range(first, first + 50):
        run_options(recreating_in_groups(seed))


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize(
    ("bug", "rule"),
    [
        (forget_unmerged_bytes, "removed is merged"),
        (count_from_the_start_of_files, "once and in order"),
    ],
)
def test_such_worlds_find_planted_bugs(bug: Mutant, rule: str) -> None:
    found = set[str]()
    for seed in range(25, 40):
        try:
            with bug():
                run_options(recreating(seed))
        except SimulationFailed as failure:
            found.add(failure.rule)
            if rule in found:
                return
    pytest.fail(f"{rule} is not among {found}")


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize("seeds", [(6, 46, 920_000_937), (27, 40, 64, 920_000_043, 920_000_825)])
def test_worlds_hold_in_which_publishers_files_rot(seeds: tuple[int, ...]) -> None:
    """The first ones once waited without end for damaged bytes. The checker once took two rotten
    appends at the end of a run for loss in the last one.
    """
    worlds = [World(rotting(seed)) for seed in seeds]
    assert sum(run_world(world).acknowledged for world in worlds) > 0
    assert all(world.rotting.rotted for world in worlds)


@pytest.mark.usefixtures("simulates", "plants_bugs")
@pytest.mark.parametrize(
    ("bug", "seed", "rule"),
    [
        (stop_at_damage, 1, "removed is merged"),
        (let_newer_runs_pass, 6, "once and in order"),
        (send_the_rest_again, 7, "once and in order"),
        (go_on_before_it_is_merged, 15, "removed is merged"),
    ],
)
def test_worlds_that_rot_find_planted_bugs(bug: Mutant, seed: int, rule: str) -> None:
    with bug(), pytest.raises(SimulationFailed) as failed:
        run_options(rotting(seed))
    assert failed.value.rule == rule


@pytest.mark.usefixtures("simulates")
def test_worlds_hold_in_which_sessions_share_connections() -> None:
    """One session of each process writes in bursts that take nodes a while to check, and one is
    refused by all nodes. In 1066, a run ends during such a check.
    """
    assert sum(run_options(sharing(seed)).acknowledged for seed in (*range(1, 6), 1066)) > 0


@pytest.mark.usefixtures("simulates", "plants_bugs")
def test_worlds_of_shared_connections_find_a_planted_bug() -> None:
    with one_session_ends_all(), pytest.raises(SimulationFailed) as failed:
        run_options(sharing(3))
    assert failed.value.rule == "everything is merged in time"


@pytest.mark.usefixtures("simulates")
def test_worlds_hold_whose_leaders_of_data_groups_lose_group_0() -> None:
    worlds = [World(cutting(seed)) for seed in (1, 2)]
    assert sum(run_world(world).acknowledged for world in worlds) > 0
    assert all(world.cut_leaders.left for world in worlds)


@pytest.mark.usefixtures("simulates", "plants_bugs")
def test_worlds_whose_leaders_lose_group_0_find_a_planted_bug() -> None:
    with lead_without_group_0(), pytest.raises(SimulationFailed) as failed:
        run_options(cutting(1))
    assert failed.value.rule == "who hears group 0 leads"


@pytest.mark.usefixtures("simulates")
def test_worlds_hold_whose_data_groups_have_no_majority_for_long() -> None:
    world = World(stalling(1))
    assert run_world(world).acknowledged > 0
    assert world.stalled_groups.passed
    assert world.stalled_groups.parted


@pytest.mark.usefixtures("simulates", "plants_bugs")
def test_worlds_whose_groups_have_no_majority_find_a_planted_bug() -> None:
    with one_group_holds_up_all(), pytest.raises(SimulationFailed) as failed:
        run_options(stalling(1))
    assert failed.value.rule == "groups do not wait for each other"


@pytest.mark.usefixtures("simulates")
def test_worlds_hold_in_which_group_0_forgets_transactions() -> None:
    worlds = [World(forgetting(seed)) for seed in (1, 3)]
    assert sum(run_world(world).acknowledged for world in worlds) > 0
    assert all(world.forgetting.forgotten for world in worlds)


@pytest.mark.usefixtures("simulates", "plants_bugs")
def test_worlds_in_which_group_0_forgets_find_a_planted_bug() -> None:
    with wait_for_what_is_forgotten(), pytest.raises(SimulationFailed) as failed:
        run_options(forgetting(1))
    assert failed.value.rule == "everything is merged in time"


SHORT_BYTES = 400
"""Most of what matters is longer: snapshots, many appends, member lists."""


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize("first", sampled((307, 313), usual=(307,)))
def test_worlds_hold_in_which_most_is_too_long_for_control(first: int) -> None:
    options = [replace(from_seed(seed), safety_s=SHORT_S) for seed in range(first, first + 6)]
    pushed, push = list[bytes](), RepairPull.push

    def counted(self: RepairPull, group: int, frame: bytes) -> bool:
        pushed.append(frame)
        return push(self, group, frame)

    with (
        patch.object(peers, "CONTROL_FRAME_BYTES", SHORT_BYTES),
        patch.object(member_queues, "CONTROL_FRAME_BYTES", SHORT_BYTES),
        patch.object(peers, "PART_ITEMS", 5),
        patch.object(RepairPull, "push", counted),
    ):
        results = [run_options(option) for option in options]
    assert sum(result.acknowledged for result in results) > 0
    assert pushed


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize("first", sampled([1, 5], 5, usual=()))
def test_worlds_of_many_groups_hold(first: int) -> None:
    seeds = range(first, first + 4)
    options = [replace(many_groups(seed), safety_s=LONG_ENOUGH_S) for seed in seeds]
    results = [run_options(option) for option in options]
    assert sum(result.acknowledged for result in results) > 0


@pytest.mark.usefixtures("simulates")
def test_worlds_hold_whose_default_groups_come_and_go() -> None:
    results = [run_options(many_groups(seed)) for seed in (4, 25, 29)]
    assert all(result.default_groups > 0 for result in results)
    assert sum(result.splits for result in results) > 0


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize("seed", [890_000_330, 890_000_350, 890_000_791])
def test_worlds_of_many_groups_that_did_not_hold_once(seed: int) -> None:
    run_options(many_groups(seed))


@pytest.mark.usefixtures("simulates")
def test_worlds_hold_in_which_topics_leave_group_0() -> None:
    results = [run_options(converting(seed)) for seed in (1, 2, 5, 6, 77_000_019, 900_000_303)]
    assert sum(result.converted for result in results) > 0


@pytest.mark.usefixtures("simulates")
@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", range(1, 401, 50))
def test_more_worlds_hold_in_which_topics_leave_group_0(first: int) -> None:
    for seed in range(first, first + 50):
        run_options(converting(seed))


@pytest.mark.usefixtures("simulates")
@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", range(1, 401, 50))
def test_more_worlds_of_many_groups_hold(first: int) -> None:
    for seed in range(first, first + 50):
        run_options(many_groups(seed))


@pytest.mark.usefixtures("simulates")
@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", range(1, 101, 20))
def test_worlds_hold_whose_members_come_back_late_and_at_once(first: int) -> None:
    """Meanwhile replicas move, so that some end in the turn in which others refuse them bytes."""
    for seed in range(first, first + 20):
        run_options(replace(many_groups(seed), **LONG_AWAY))
