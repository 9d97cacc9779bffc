"""Planted bugs: each breaks one rule, and the simulator must notice every one of them.

A mutant that survives means that a check is missing, or that the worlds are too kind. Some rules
matter only in rare company; their mutants are hunted in worlds where just that goes wrong, often.

No mutant stands for rules that another one covers, so that nobody can see them broken: what
snapshots leave out of the waiting instructions, what a restarted node states too early or never
asks for again, and ranges that are left out are all copied from peers as merged bytes; what the
first record of a log file says, the next commit index says again at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tests.cluster_sim.mutants_archiving import ARCHIVING
from tests.cluster_sim.mutants_compaction import COMPACTION
from tests.cluster_sim.mutants_durability import DURABILITY
from tests.cluster_sim.mutants_groups import GROUPS
from tests.cluster_sim.mutants_ordering import ORDERING
from tests.cluster_sim.mutants_resets import RESETS
from tests.cluster_sim.mutants_spanning import SPANNING
from tests.cluster_sim.mutants_transactions import TRANSACTIONS
from tests.cluster_sim.mutants_upgrades import UPGRADES
from tests.cluster_sim.options import Options, from_seed
from tests.cluster_sim.rhythm import Rhythm
from tests.cluster_sim.run import SimulationFailed, run_options

Mutant = Callable[[], AbstractContextManager[None]]

MUTANTS: tuple[Mutant, ...] = (
    *DURABILITY,
    *ORDERING,
    *ARCHIVING,
    *RESETS,
    *UPGRADES,
    *TRANSACTIONS,
    *COMPACTION,
    *SPANNING,
    *GROUPS,
)

POWER = ("power_loss", "power_loss_all", "fuse")
OFTEN: dict[str, Any] = {
    "fault_every_s": 0.7,
    "safety_s": 20.0,
    "rhythm": Rhythm(20.0, 0.0),
    "minority_stays_away": False,
}
MUCH: dict[str, Any] = {
    "nodes": 3,
    "subscribers": 1,
    "retention_bytes": 0,
    "segment_bytes": 1 << 12,
    "value_bytes": 1500,
    "append_every_s": 0.05,
}
"""So that there is something to archive."""
IN_TRANSACTIONS: dict[str, Any] = {
    "producers": 4,
    "topics": 1,
    "partitions": 2,
    "publishers": 1,
    "append_every_s": 0.5,
    "latency_s": 0.002,
    "safety_s": 8.0,
}
COMPACTED: dict[str, Any] = {
    "keys": 5,
    "tombstones_stay_ms": 20_000,
    "topics": 1,
    "segment_bytes": 1 << 12,
    "value_bytes": 100,
    "append_every_s": 0.05,
    "safety_s": 24.0,
}
IN_GROUPS: dict[str, Any] = {
    "kinds": ("kill", "kill", "kill_leader", "power_loss"),
    "fault_every_s": 1.5,
    "nodes": 3,
    "data_groups": 3,
    "replicas": 3,
    "stagers": 2,
    "topics": 1,
    "publishers": 1,
    "subscribers": 0,
    "append_every_s": 1.0,
    "latency_s": 0.005,
    "sync_s": 0.01,
    "slow_chance": 0.0,
    "restart_s": 0.2,
    "safety_s": 16.0,
}
RESET: dict[str, Any] = {"resets": ((2.0, True),), "append_every_s": 0.05}
FOLLOWED: dict[str, Any] = {
    **IN_GROUPS,
    "follows_groups": True,
    "stagers": 0,
    "publishers": 2,
    "append_every_s": 0.1,
}
"""Publishers write to data groups, which are looked at entry by entry."""
FOCUS: dict[str, dict[str, Any]] = {
    "use_what_only_some_know": {"kinds": (), "upgrades": True},
    "finalize_by_a_majority": {"kinds": (), "upgrades": True},
    "forgive_failed_syncs": {
        "kinds": ("failing_sync",),
        "nodes": 1,
        "sync_s": 0.1,
        "append_every_s": 0.05,
    },
    "forget_votes": {"kinds": ("kill", "kill_leader", "kill_all")},
    "roll_without_sync": {"kinds": POWER, "wal_bytes": 1 << 12, "append_every_s": 0.05},
    "cut_damage": {"kinds": ("rot", "kill_all"), "fault_every_s": 0.3},
    "snapshot_before_sync": {
        "kinds": POWER,
        "nodes": 1,
        "snapshot_interval_s": 0.3,
        "append_every_s": 0.05,
    },
    "ignore_failed_session_syncs": {"kinds": ("failing_sync",)},
    "names_are_not_synced": {"kinds": POWER, "roll_bytes": 1 << 12},
    "trust_torn_tails": {"kinds": POWER},
    "trust_gaps": {"kinds": POWER, "roll_bytes": 1 << 12, "append_every_s": 0.05, "sync_s": 0.1},
    "release_all_at_once": {
        "kinds": POWER,
        "nodes": 1,
        "roll_bytes": 1 << 12,
        "value_bytes": 1500,
        "append_every_s": 0.05,
    },
    "remove_merged_files_at_once": {
        "kinds": ("full_disk", "kill_leader", "fuse"),
        "roll_bytes": 1 << 12,
        "value_bytes": 1500,
        "append_every_s": 0.05,
    },
    "wiped_nodes_vote": {
        "kinds": ("wipe", "kill_leader", "cut", "mend", "isolate_leader"),
        "nodes": 3,
        "fault_every_s": 0.3,
    },
    "count_before_let_in": {
        "kinds": ("wipe", "kill_leader", "cut", "mend", "isolate_leader"),
        "nodes": 3,
        "fault_every_s": 0.3,
    },
    "copies_count": {
        "kinds": ("stale_node", "stale_node", "kill_leader", "cut", "mend", "isolate_leader"),
        "nodes": 3,
        "fault_every_s": 0.3,
    },
    "snapshots_are_not_synced": {"kinds": POWER, "nodes": 1, "snapshot_interval_s": 0.3},
    "forget_unclean_ends": {
        "lazy_sync": True,
        "kinds": (
            "power_loss",
            "power_loss",
            "kill_leader",
            "fuse",
            "cut_one_way",
            "isolate_leader",
            "mend",
            "mend",
        ),
        "nodes": 3,
        "fault_every_s": 0.3,
        "append_every_s": 0.02,
        "restart_s": 0.1,
        "sync_s": 0.02,
        "slow_chance": 0.0,
    },
    "keep_speculation": {"kinds": ("isolate_leader", "mend", "kill_leader")},
    "plan_what_the_leader_lacks": {
        "kinds": (),
        "nodes": 5,
        "publishers": 3,
        "append_every_s": 0.05,
        "latency_s": 0.002,
        "sync_s": 0.0002,
        "slow_chance": 0.3,
        "slow_s": 0.05,
    },
    "plan_before_noop": {"kinds": ("isolate_leader", "mend", "kill_leader")},
    "share_run_numbers": {"kinds": ("stale_publisher", "kill_publisher"), "fault_every_s": 0.3},
    "forget_runs": {
        "kinds": ("stale_publisher", "kill_publisher"),
        "fault_every_s": 0.3,
        "append_every_s": 0.05,
        "runs_remembered": 4,
    },
    "merge_any_bytes": {"kinds": ("rot",), "fault_every_s": 0.3, "append_every_s": 0.2},
    "copy_any_bytes": {"kinds": ("rot", "wipe"), "nodes": 5, "fault_every_s": 0.3},
    "archive_the_active_file": {"kinds": ("kill",), **MUCH},
    "archive_by_a_minority": {"kinds": ("slow_disk", "cut", "mend"), "sync_s": 0.1, **MUCH},
    "truncate_what_is_kept": {"kinds": ("kill",), **MUCH},
    "forget_the_copies": {"kinds": ("kill_subscriber",), **MUCH},
    "wait_for_what_is_archived": {"kinds": ("wipe", "kill"), "kept_entries": 0, **MUCH},
    "archive_what_is_not_copied": {"kinds": ("kill",), "copies": True, **MUCH},
    "believe_what_was_written": {"kinds": ("kill",), "copies": True, **MUCH},
    "believe_what_is_there": {"kinds": ("kill", "fuse"), "copies": True, **MUCH},
    "roll_by_memory": {"kinds": ("kill",), "segment_bytes": 1 << 12},
    "begin_anew_under_the_old_id": {"kinds": ("kill",), **RESET},
    "merge_again_after_resets": {"kinds": ("kill",), **RESET},
    "epochs_do_not_rise": {"kinds": ("kill",), **RESET},
    "end_in_one_partition": {"kinds": (), **IN_TRANSACTIONS},
    "commit_what_is_overdue": {"kinds": ("kill_leader",), **IN_TRANSACTIONS},
    "forget_what_is_open": {"kinds": ("kill", "kill_leader"), **IN_TRANSACTIONS},
    "forget_who_waits": {
        "kinds": ("isolate_leader", "mend", "kill_leader", "cut"),
        **IN_TRANSACTIONS,
        "nodes": 3,
        "fault_every_s": 0.3,
    },
    "ask_only_who_has_reported": {
        "kinds": ("kill_leader", "wipe"),
        **IN_TRANSACTIONS,
        "nodes": 3,
        "latency_s": 0.02,
        "sync_s": 0.0002,
        "slow_chance": 0.1,
        "slow_s": 0.05,
        "restart_s": 0.1,
    },
    "drop_tombstones_at_once": {"kinds": (), **COMPACTED},
    "compact_the_active_file": {"kinds": (), **COMPACTED},
    "look_for_some_keys_only": {"kinds": (), **COMPACTED, "keys": 500},
    "swap_without_sync": {"kinds": ("power_loss_all",), **COMPACTED, "nodes": 1},
    "go_on_inside": {"kinds": ("wipe", "kill", "split", "mend"), **COMPACTED},
    "leave_what_was_covered": {"kinds": ("kill_all",), **COMPACTED, "nodes": 1},
    "merge_again_in_groups": {**FOLLOWED, "kinds": ("kill",), "resets": ((6.0, True),)},
    "epochs_of_groups_do_not_rise": {**FOLLOWED, "kinds": ("kill",), "resets": ((6.0, True),)},
    "release_what_one_of_a_group_has_merged": {
        **FOLLOWED,
        "roll_bytes": 1 << 12,
        "value_bytes": 1500,
        "append_every_s": 0.05,
        "sync_s": 0.05,
    },
    "carry_out_a_part": IN_GROUPS,
    "decide_by_the_first": IN_GROUPS,
    "done_by_word": IN_GROUPS,
    "forget_pins_in_snapshots": {**IN_GROUPS, "snapshot_interval_s": 0.3},
    "forget_what_is_decided": IN_GROUPS,
    "prepared_by_word": IN_GROUPS,
    "say_markers_and_write_none": {**IN_GROUPS, "producers": 2},
    "take_behind_the_marker": {
        **IN_GROUPS,
        "kinds": (),
        "data_groups": 1,
        "producers": 6,
        "stagers": 1,
        "sync_s": 0.1,
        "latency_s": 0.02,
        "slow_chance": 0.1,
        "slow_s": 0.5,
    },
}
"""What the worlds of some mutants are like, beside what their seeds say."""


def hunt(mutant: Mutant, seeds: Iterable[int]) -> tuple[int, SimulationFailed | None]:
    """How many worlds were needed, and the failure in the last one, which holds without the
    mutant; None if it survives all.
    """
    count = 0
    focus = FOCUS.get(mutant.__name__)
    usual: dict[str, Any] = {
        "lazy_sync": False,
        "retention_bytes": -1,
        "copies": False,
        "resets": (),
        "changes": (),
        "upgrades": False,
        "producers": 0,
        "keys": 0,
        "stagers": 0,
    }
    changes = usual | ({} if focus is None else {**OFTEN, **focus})
    for seed in seeds:
        count += 1
        options = replace(from_seed(seed), **changes)
        with mutant():
            failure = _failure_of(options)
        if failure is not None and _failure_of(options) is None:
            return count, failure
    return count, None


def hunted(name: str, *, seeds: range) -> tuple[int, str]:
    """How many worlds it took to see a mutant, and what was seen; empty: nothing."""
    mutant = next(mutant for mutant in MUTANTS if mutant.__name__ == name)
    count, failure = hunt(mutant, seeds)
    return count, "" if failure is None else failure.summary[:110]


def _failure_of(options: Options) -> SimulationFailed | None:
    try:
        run_options(options)
    except SimulationFailed as failure:
        return failure
    return None
