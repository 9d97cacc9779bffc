"""Answers administrators about archiving. Invariant: asking changes nothing."""

from __future__ import annotations

from samelog.admin.answers import ArchivePlan, LogHistoryPage, PlannedArchive
from samelog.admin.requests import LogHistory, PlanArchive
from samelog.archiver.log_history import HistoryRefused
from samelog.archiver.plan import ArchiveProposal
from samelog.consensus import NotLeader
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.merge.merging import Merging

TEXT_CHARACTERS = 1000


def log_history(node: ServedNode, request: LogHistory) -> LogHistoryPage:
    """One page. Raises ChangeRefused."""
    try:
        return node.care.archive.log_history.page(request)
    except HistoryRefused as error:
        raise ChangeRefused(error.code, str(error), error.remedy) from error


def plan_archive(node: ServedNode, request: PlanArchive) -> ArchivePlan:
    """What the next round would do. Raises NotLeader."""
    if not node.raft.group.is_leader:
        raise NotLeader(node.raft.group.raft.leader)
    archive, merging = node.care.archive, node.logs.merging
    found = archive.rounds.plan()
    return ArchivePlan(
        archive.policy.text,
        archive.policy.problem[:TEXT_CHARACTERS],
        tuple(_planned(merging, each) for each in found.proposals),
        tuple(found.held),
        archive.copies.state(),
        tuple(archive.disagreements()),
    )


def _planned(merging: Merging, each: ArchiveProposal) -> PlannedArchive:
    merged = merging.partitions[each.partition]
    ends = each.first, each.segment
    return PlannedArchive(merged.topic, merged.index, *ends, each.files, each.size, each.reason)
