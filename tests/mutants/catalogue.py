"""All planted bugs: which rule each breaks, what finds it, and the list of them in
docs/reliability.md.

Rules are `invariant n` and `rule subject.n` of docs/design/invariants, `Raft` and a section of the
paper, or `thesis` and one of Ongaro's thesis.
"""

from __future__ import annotations

import re
import textwrap
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
    "count_the_untrusted": "rule raft.1",
    "votes_of_the_wiped": "rule raft.1",
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
    "certain_after_power_loss": "rule raft.3",
    "doubt_ends_unasked": "rule raft.3",
    "judge_unread": "rule raft.6",
    "take_without_bytes": "rule raft.14",
    "acknowledge_what_is_held_back": "rule raft.14",
    "take_bare_what_is_sent": "rule raft.14",
    "wait_for_committed_bytes": "rule raft.14",
    "sync_the_log_alone": "rule raft.15",
    "keep_what_has_no_bytes": "rule raft.16",
    "release_before_the_commit_is_kept": "rule raft.16",
}
CLUSTER_RULES = {
    "drop_tombstones_at_once": "rule archive.2",
    "look_for_some_keys_only": "rule archive.2",
    "compact_the_active_file": "rule archive.3",
    "swap_without_sync": "rule archive.4",
    "leave_what_was_covered": "rule archive.4",
    "go_on_inside": "rule logs.7",
    "saved_before_sync": "Raft 5, figure 2",
    "forgive_failed_syncs": "rule logs.5",
    "forget_votes": "Raft 5.2",
    "roll_without_sync": "invariant 8",
    "cut_damage": "rule logs.1",
    "snapshot_before_sync": "rule sessions.4",
    "report_written": "invariant 3",
    "ignore_failed_session_syncs": "rule logs.5",
    "mark_what_came_meanwhile": "rule logs.1",
    "save_without_bytes": "rule raft.15",
    "take_entries_unbacked": "rule raft.14",
    "names_are_not_synced": "rule sessions.1",
    "merged_before_sync": "rule sessions.4",
    "trust_torn_tails": "rule logs.1",
    "trust_gaps": "rule logs.1",
    "release_all_at_once": "invariant 8",
    "remove_merged_files_at_once": "rule sessions.2",
    "wiped_nodes_vote": "rule raft.1",
    "copies_count": "rule raft.1",
    "count_before_let_in": "rule raft.7",
    "snapshots_are_not_synced": "rule sessions.4",
    "forget_unclean_ends": "rule raft.3",
    "plan_what_the_leader_lacks": "rule merge.3",
    "plan_before_noop": "rule merge.6",
    "keep_speculation": "rule merge.6",
    "use_offsets_again": "invariant 5",
    "plan_bytes_again": "invariant 3",
    "take_any_place": "rule merge.6",
    "judge_native_batches": "rule sessions.3",
    "close_runs_early": "rule sessions.2",
    "close_at_what_the_leader_holds": "rule sessions.2",
    "close_beside_plans": "rule sessions.2",
    "acknowledge_what_is_durable": "invariant 3",
    "release_what_is_committed": "rule sessions.4",
    "release_what_one_has_merged": "rule sessions.4",
    "share_run_numbers": "rule sessions.1",
    "forget_runs": "rule sessions.1",
    "merge_any_bytes": "rule merge.4",
    "copy_any_bytes": "rule merge.4",
    "roll_by_memory": "rule merge.8",
    "archive_the_active_file": "invariant 7",
    "archive_by_a_minority": "invariant 7",
    "truncate_what_is_kept": "rule archive.1",
    "forget_the_copies": "rule archive.1",
    "wait_for_what_is_archived": "rule raft.2",
    "begin_anew_under_the_old_id": "rule readers.1",
    "merge_again_after_resets": "invariant 3",
    "epochs_do_not_rise": "rule kafka.1",
    "end_in_one_partition": "rule transactions.1",
    "commit_what_is_overdue": "rule transactions.1",
    "forget_what_is_open": "rule transactions.2",
    "forget_who_waits": "rule turns.4",
    "ask_only_who_has_reported": "rule raft.14",
    "use_what_only_some_know": "rule raft.12",
    "finalize_by_a_majority": "rule raft.12",
    "archive_what_is_not_copied": "invariant 7",
    "believe_what_was_written": "invariant 7",
    "believe_what_is_there": "invariant 7",
    "decide_by_the_first": "rule transactions.3",
    "forget_what_is_decided": "rule transactions.3",
    "prepared_by_word": "rule transactions.3",
    "carry_out_a_part": "rule transactions.4",
    "done_by_word": "rule transactions.4",
    "forget_pins_in_snapshots": "rule transactions.4",
    "say_markers_and_write_none": "rule transactions.5",
    "take_behind_the_marker": "rule transactions.5",
    "epochs_of_groups_do_not_rise": "rule transactions.6",
    "merge_again_in_groups": "rule placement.10",
    "release_what_one_of_a_group_has_merged": "rule sessions.4",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One planted bug. `found_by`: a simulator, or the name of a test."""

    rule: str
    name: str
    what: str
    found_by: str

    @property
    def is_simulated(self) -> bool:
        """Whether worlds find it."""
        return self.found_by in ("groups", "clusters")

    def entry(self, seeds: int | None) -> str:
        """Its entry in the report; `seeds`: how many worlds it took, None for a test."""
        found = self.found_by if seeds is None else f"{self.found_by}, {seeds}"
        return textwrap.fill(
            f"- `{self.name}` ({found}): {self.what}.",
            100,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )


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


def listed() -> str:
    """All of them by rule, as the report has them."""
    seeds, parts, rule = reported_seeds(), list[str](), ""
    for row in rows():
        parts += [] if row.rule == rule else [f"\n**{row.rule}**\n\n"]
        parts.append(f"{row.entry(seeds.get(row.name))}\n")
        rule = row.rule
    return "".join((*parts, "\n"))


def reported_seeds() -> dict[str, int]:
    """How many worlds each simulated bug took to be found, by the report."""
    entry = re.compile(r"^- `(\w+)`\s+\((?:groups|clusters),\s+(\d+)\)", re.MULTILINE)
    return {name: int(seeds) for name, seeds in entry.findall(REPORT.read_text(encoding="utf-8"))}
