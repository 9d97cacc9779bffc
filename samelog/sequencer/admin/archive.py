"""Answers administrators about archiving. Invariant: asking changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samelog.archiver.log_history import HistoryRefused
from samelog.archiver.plan import ArchiveProposal
from samelog.consensus import NotLeader
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.wire import admin_archive as wire

if TYPE_CHECKING:
    from samelog.sequencer.node import Node

TEXT_CHARACTERS = 1000


def serve_archive(node: Node, request: wire.ArchiveRequest) -> wire.ArchiveResponse:
    """What is asked. Raises NotLeader, ChangeRefused."""
    if isinstance(request, wire.LogHistory):
        try:
            return node.archive.log_history.page(request)
        except HistoryRefused as error:
            raise ChangeRefused(error.code, str(error), error.remedy) from error
    if not node.group.is_leader:
        raise NotLeader(node.group.raft.leader)
    policy, found = node.archive.policy, node.archive.rounds.plan()
    return wire.ArchivePlan(
        policy.text,
        policy.problem[:TEXT_CHARACTERS],
        tuple(_planned(node, each) for each in found.proposals),
        tuple(found.held),
        node.archive.copies.state(),
        tuple(node.archive.disagreements()),
    )


def _planned(node: Node, each: ArchiveProposal) -> wire.PlannedArchive:
    merged = node.merging.partitions[each.partition]
    ends = each.first, each.segment
    return wire.PlannedArchive(
        merged.topic, merged.index, *ends, each.files, each.size, each.reason
    )
