"""The errors of the consensus package: what a caller or a peer can cause.

Invariant: a broken promise of Raft itself is never one of these; it is an InvariantError, which
ends the process.
"""

from __future__ import annotations


class ConsensusError(Exception):
    """Base of everything this package raises for a caller's, a peer's or a disk's fault."""


class NotLeader(ConsensusError):
    """The node does not lead, or is giving leadership away; `hint` is who may lead instead, if
    known.
    """

    def __init__(self, hint: int | None) -> None:
        super().__init__(
            f"not the leader (try node {hint})" if hint is not None else "not the leader"
        )
        self.hint = hint


class Busy(ConsensusError):
    """Too many proposed bytes wait to be committed; try again when some are."""


class ChangePending(ConsensusError):
    """The membership cannot change yet: an earlier change, or the leader's no-op, is under way."""


class MalformedMessage(ConsensusError):
    """A peer sent bytes that are no messages, or a message that contradicts itself."""


class HistoryConflict(ConsensusError):
    """Another node's word contradicts what is committed here: the group has two histories, because
    some voter forgot what it had promised. This replica must take no part any more.
    """

    remedy = "keep the data directories of all nodes: docs/operations.md, SamelogReplicaHalted"


class CorruptRecord(ConsensusError):
    """A file of the consensus log or a snapshot file does not hold what was written to it."""


class UnfinishedFile(CorruptRecord):
    """A log file ends within its header: the node failed while making it, before any record."""
