"""This node's own life: how it introduces itself, and what the replicated state says of it.

Invariant: a suspect node counts again only when its state holds the entry that lets this very life
in; nothing that it was told by a single peer makes it sure.
"""

from __future__ import annotations

import logging

from samelog.consensus import is_configuration
from samelog.runtime.log import log_event
from samelog.sequencer.cluster.lives import (
    NEVER_SEEN,
    Acknowledged,
    Contradiction,
    HasForgotten,
    KnownLife,
    descends,
)
from samelog.sequencer.cluster.node_dir import NodeDirectory
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.sites.sources import far_members
from samelog.sequencer.state.commands import AnyCommand, CommandError, decode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import SetMembers
from samelog.wire.bounds import UNDECIDED, Life

log = logging.getLogger(__name__)


class OwnLife:
    """What is known of this node's own life, and by the replicated state of those of others."""

    def __init__(self, directory: NodeDirectory, group: RaftGroup, machine: StateMachine) -> None:
        self._directory = directory
        self._group = group
        self._machine = machine

    @property
    def is_sure(self) -> bool:
        """Whether this node has forgotten nothing that it promised."""
        raft = self._group.raft
        return raft.may_vote and not raft.is_doubtful

    def told(self) -> Life:
        """As it is now."""
        record, raft = self._directory.record, self._group.raft
        index = raft.saves.on_disk
        return Life(
            record.boot,
            record.incarnation,
            tuple(record.predecessors),
            self.is_sure,
            self.cluster_id,
            raft.saves.durable_term,
            index,
            raft.log.term_at(index) or 0,
        )

    @property
    def cluster_id(self) -> str:
        """Of the state; UNDECIDED if an entry names one that may yet be replaced; empty: it has not
        begun.
        """
        known = self._directory.record.cluster_id or self._machine.state.members.cluster_id
        return known or (UNDECIDED if self._is_named_in_log() else "")

    def _is_named_in_log(self) -> bool:
        raft = self._group.raft
        for entry in raft.log.entries(raft.first_index, raft.last_index + 1):
            if is_configuration(entry.data):
                for command in _known_commands(entry.data):
                    if isinstance(command, SetMembers) and command.cluster_id:
                        return True
        return False

    def settle(self) -> None:
        """The replicated state has changed: go by what it says of this life."""
        record, state = self._directory.record, self._machine.state
        if state.members.cluster_id and not record.cluster_id:
            self._directory.belongs_to(state.members.cluster_id)
        sites, members = state.placement.sites, state.members.by_number
        self._directory.knows_far(far_members(sites, members, record.number))
        if not self._group.raft.may_vote and self._is_let_in():
            self._group.raft.regain_trust()
        if record.suspicion and self._group.raft.may_vote:
            let_in_at = state.placement.let_in_at.get(record.number, 0)
            self._directory.is_let_in(let_in_at if self._is_let_in() else None)
            log_event(log, logging.WARNING, "counts again", reason=record.suspicion)

    def _is_let_in(self) -> bool:
        record = self._directory.record
        known = self._machine.state.members.started.get(record.number)
        return known is not None and known.let_in == record.incarnation

    def is_over(self) -> None:
        """A site was promoted: nothing that this life says counts from now on."""
        self._group.raft.become_suspect()
        self._group.pump()

    def forgot(self, found: Contradiction) -> HasForgotten | None:
        """This node has forgotten something: it counts for nothing. Why it has to end, to begin a
        life that follows, where the others know one of it that it does not.
        """
        self._group.raft.become_suspect()
        self._group.pump()
        if found.known != NEVER_SEEN and not descends(self.told(), found.known):
            return HasForgotten(found)
        if self._directory.record.may_vote:
            self._directory.is_suspect(found.reason)
            log_event(log, logging.WARNING, "suspect", reason=found.reason)
        return None

    def contradiction(self) -> Contradiction | None:
        """A life of this node in the replicated state that is none of those before this one."""
        record = self._directory.record
        known = self.recorded(record.number)
        lives = {"", record.incarnation, *record.predecessors}
        if known.incarnation in lives or known.boot < record.boot - len(lives):
            return None
        text = f"boot {known.boot} was another life of it"
        return Contradiction(text, known, is_own=True)

    def recorded(self, number: int) -> KnownLife:
        """The newest life of a member by the replicated state."""
        known = self._machine.state.members.started.get(number)
        return NEVER_SEEN if known is None else KnownLife(known.boot, known.incarnation)

    def acknowledged(self, number: int) -> tuple[Acknowledged, ...]:
        """What a member acknowledged to this node in group 0, if it leads."""
        raft = self._group.raft
        progress = raft.progress(number)
        if progress is None or not progress.match:
            return ()
        return (Acknowledged(raft.term, progress.match),)


def _known_commands(data: bytes) -> list[AnyCommand]:
    """None of an entry that this build does not know; the replica halts once it is committed."""
    try:
        return decode_commands(data)
    except CommandError:
        return []
