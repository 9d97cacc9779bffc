"""All planted bugs: which rule each breaks, what finds it, and the table of them in
docs/reliability.md.

Rules are `invariant n` and `rule n` of docs/invariants.md, `Raft` and a section of the paper, or
`thesis` and one of Ongaro's thesis.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.cluster_sim import mutants as clusters
from tests.mutants.by_tests import PLANTED
from tests.sim import mutants as groups

REPORT = Path(__file__).parents[2] / "docs" / "reliability.md"

GROUP_RULES = {
    "reply_before_fsync": "Raft 5, figure 2",
    "vote_twice": "Raft 5.2",
    "forget_vote_on_disk": "Raft 5.2",
    "commit_older_terms": "Raft 5.4.2",
    "count_before_save": "Raft 5.3",
    "vote_for_anyone": "Raft 5.4.1",
    "count_the_untrusted": "rule 13",
    "votes_of_the_wiped": "rule 13",
    "keep_conflicting_suffix": "Raft 5.3",
    "match_without_previous_term": "Raft 5.3",
    "read_without_proof": "thesis 6.4",
    "read_before_noop": "thesis 6.4",
    "stale_rounds": "thesis 6.4",
    "ignore_lost_appends": "Raft 5.3",
    "commit_what_is_missing": "Raft 5.3",
    "save_entries_out_of_order": "Raft 5, figure 2",
    "changes_side_by_side": "thesis 4.1",
    "change_many_voters": "thesis 4.1",
    "keep_replaced_membership": "thesis 4.1",
    "count_learners": "thesis 4.2.1",
    "count_the_removed_leader": "thesis 4.2.2",
    "silence_the_removed": "thesis 4.2.2",
    "forget_members_of_snapshots": "Raft 7",
    "ignore_unknown_leaders": "thesis 4.1",
    "certain_after_power_loss": "rule 17",
    "doubt_ends_unasked": "rule 17",
    "judge_unread": "rule 33",
    "take_without_bytes": "rule 43",
    "acknowledge_what_is_held_back": "rule 43",
    "take_bare_what_is_sent": "rule 43",
    "wait_for_committed_bytes": "rule 43",
    "sync_the_log_alone": "rule 44",
    "keep_what_has_no_bytes": "rule 45",
    "release_before_the_commit_is_kept": "rule 45",
}
CLUSTER_RULES = {
    "drop_tombstones_at_once": "rule 68",
    "look_for_some_keys_only": "rule 68",
    "compact_the_active_file": "rule 69",
    "swap_without_sync": "rule 70",
    "leave_what_was_covered": "rule 70",
    "go_on_inside": "rule 71",
    "saved_before_sync": "Raft 5, figure 2",
    "forgive_failed_syncs": "rule 28",
    "forget_votes": "Raft 5.2",
    "roll_without_sync": "invariant 8",
    "cut_damage": "rule 15",
    "snapshot_before_sync": "rule 4",
    "report_written": "invariant 3",
    "ignore_failed_session_syncs": "rule 28",
    "mark_what_came_meanwhile": "rule 15",
    "save_without_bytes": "rule 44",
    "take_entries_unbacked": "rule 43",
    "names_are_not_synced": "rule 1",
    "merged_before_sync": "rule 4",
    "trust_torn_tails": "rule 15",
    "trust_gaps": "rule 15",
    "release_all_at_once": "invariant 8",
    "remove_merged_files_at_once": "rule 2",
    "wiped_nodes_vote": "rule 13",
    "copies_count": "rule 13",
    "count_before_let_in": "rule 34",
    "snapshots_are_not_synced": "rule 4",
    "forget_unclean_ends": "rule 17",
    "plan_what_the_leader_lacks": "rule 7",
    "plan_before_noop": "rule 11",
    "keep_speculation": "rule 11",
    "use_offsets_again": "invariant 5",
    "plan_bytes_again": "invariant 3",
    "take_any_place": "rule 11",
    "judge_native_batches": "rule 3",
    "close_runs_early": "rule 2",
    "close_at_what_the_leader_holds": "rule 2",
    "close_beside_plans": "rule 2",
    "acknowledge_what_is_durable": "invariant 3",
    "release_what_is_committed": "rule 4",
    "release_what_one_has_merged": "rule 4",
    "share_run_numbers": "rule 1",
    "forget_runs": "rule 1",
    "merge_any_bytes": "rule 8",
    "copy_any_bytes": "rule 8",
    "roll_by_memory": "rule 22",
    "archive_the_active_file": "invariant 7",
    "archive_by_a_minority": "invariant 7",
    "truncate_what_is_kept": "rule 16",
    "forget_the_copies": "rule 16",
    "wait_for_what_is_archived": "rule 14",
    "begin_anew_under_the_old_id": "rule 10",
    "merge_again_after_resets": "invariant 3",
    "epochs_do_not_rise": "rule 21",
    "end_in_one_partition": "rule 75",
    "commit_what_is_overdue": "rule 75",
    "forget_what_is_open": "rule 76",
    "forget_who_waits": "rule 320",
    "begin_before_all_know": "rule 40",
    "ask_only_who_has_reported": "rule 43",
    "use_what_only_some_know": "rule 40",
    "finalize_by_a_majority": "rule 40",
    "archive_what_is_not_copied": "invariant 7",
    "believe_what_was_written": "invariant 7",
    "believe_what_is_there": "invariant 7",
    "decide_by_the_first": "rule 141",
    "forget_what_is_decided": "rule 141",
    "prepared_by_word": "rule 141",
    "carry_out_a_part": "rule 142",
    "done_by_word": "rule 142",
    "forget_pins_in_snapshots": "rule 142",
    "say_markers_and_write_none": "rule 143",
    "take_behind_the_marker": "rule 143",
    "epochs_of_groups_do_not_rise": "rule 153",
    "merge_again_in_groups": "rule 152",
    "release_what_one_of_a_group_has_merged": "rule 4",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One planted bug. `found_by`: a simulator, or the name of a test."""

    rule: str
    name: str
    what: str
    found_by: str

    def line(self, seeds: int | None) -> str:
        """Its line of the table; `seeds`: how many worlds it took, None for a test."""
        count = "" if seeds is None else str(seeds)
        return f"| {self.rule} | `{self.name}` | {self.what} | {self.found_by} | {count} |"


def rows() -> list[Row]:
    """All of them, by rule."""
    simulated = [
        Row(rules.get(mutant.__name__, ""), mutant.__name__, _what(mutant.__doc__), simulator)
        for simulator, rules, mutants in (
            ("groups", GROUP_RULES, groups.MUTANTS),
            ("clusters", CLUSTER_RULES, clusters.MUTANTS),
        )
        for mutant in mutants
    ]
    tested = [
        Row(
            f"rule {planted.rule}",
            planted.mutant.__name__,
            _what(planted.mutant.__doc__),
            f"`{planted.test.removeprefix('tests/').partition('::')[0]}`",
        )
        for planted in PLANTED
    ]
    return sorted(simulated + tested, key=_order)


def _what(text: str | None) -> str:
    return " ".join((text or "").split()).removesuffix(".")


def _order(row: Row) -> tuple[object, ...]:
    """Numbers within rules by their value."""
    parts = re.split(r"(\d+)", row.rule)
    return (*(int(part) if part.isdigit() else part for part in parts), row.name)


def reported() -> dict[str, str]:
    """The lines of the table in the report, by the names of the bugs."""
    row = re.compile(r"^\| (?:invariant|rule|Raft|thesis)[^|]* \| `(\w+)` \|.*$", re.MULTILINE)
    found = row.finditer(REPORT.read_text(encoding="utf-8"))
    return {match[1]: match[0] for match in found}


def reported_seeds(name: str) -> int:
    """How many worlds a bug took to be found, by the report: the number of the last one."""
    return int(reported()[name].rstrip("| ").rpartition("|")[2])
