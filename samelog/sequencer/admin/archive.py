"""Answers administrators about archiving. Invariant: asking changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samelog.archiver.plan import Proposal
from samelog.consensus import NotLeader
from samelog.sequencer.archive.log_history import log_history
from samelog.wire import admin_archive as wire

if TYPE_CHECKING:
    from samelog.sequencer.node import Node

TEXT_CHARACTERS = 1000


def serve_archive(node: Node, request: wire.ArchiveRequest) -> wire.ArchiveResponse:
    """What is asked. Raises NotLeader, ChangeRefused."""
    if isinstance(request, wire.LogHistory):
        return log_history(node, request)
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


def _planned(node: Node, each: Proposal) -> wire.PlannedArchive:
    merged = node.merging.partitions[each.partition]
    ends = each.first, each.segment
    return wire.PlannedArchive(
        merged.topic, merged.index, *ends, each.files, each.size, each.reason
    )
