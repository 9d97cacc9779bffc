"""Looks after the members and the leadership of one Raft group, whichever kind it is, by the steps
of `keeper_steps`. Only the leader's acts.

Invariant: nothing that it remembers is needed by the next leader: what could not be done is found
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from samelog.consensus import Busy, NotLeader, ProgressState
from samelog.runtime.clock import Clock
from samelog.sequencer.cluster.keeper_steps import (
    CLOSE_ENTRIES,
    KeeperStep,
    Observed,
    Peer,
    StepKind,
    WantedGroup,
    next_step,
)
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.views import NO_FILES, KeptFiles
from samelog.sequencer.state.tables.members import LetIn
from samelog.sequencer.state.types import State
from samelog.wire.bounds import Life

if TYPE_CHECKING:
    from samelog.sequencer.raft.coordinator import Coordinator
    from samelog.sequencer.state.machine import StateMachine

HOLD_S = 2.0
"""Seconds for which a new leader keeps leadership before it transfers it to a preferred member: its
predecessor may have left it unfinished work.
"""


def _files_of(state: State) -> Iterator[tuple[int, KeptFiles]]:
    """Yield the open partitions, with what a replica must have of each. A partition that comes from
    another group is opened later.
    """
    for number, known in state.partitions.by_number.items():
        if state.has_here(number) and not state.transfers.is_coming(number):
            compacted = 0 if known.compacted is None else known.compacted.newest
            keyed = state.keys.by_partition.get(number)
            counts = keyed is not None and keyed.floor < known.log_start
            indexed = known.log_start if counts else 0
            yield number, KeptFiles(known.start_segment, compacted, indexed)


class KeptGroup(Protocol):
    """What is wanted of a group, and how its members change."""

    def wanted(self) -> WantedGroup:
        """Return the desired state of the group."""

    @property
    def may_change(self) -> bool:
        """Whether the last change of its members is over."""

    @property
    def round_s(self) -> float:
        """A replica is close if it has merged everything that is older than this many seconds."""

    def life(self, number: int) -> tuple[Life, bool] | None:
        """A member's life as it introduced itself, and whether that is sure by its own word; None
        if it did not.
        """

    def change(self, step: KeeperStep) -> None:
        """Propose that a learner votes, or that a member is none any more."""


def is_in_maintenance(cluster: State, number: int, now_ms: int) -> bool:
    """Return whether a member is in maintenance, by the state of group 0."""
    member = cluster.members.by_number.get(number)
    return member is not None and cluster.members.maintenance.get(member.name, 0) > now_ms


class GroupKeeper:
    """One replica's."""

    def __init__(
        self,
        kept: KeptGroup,
        *,
        group: RaftGroup,
        machine: StateMachine,
        coordinator: Coordinator,
        presence: Presence,
        clock: Clock,
        cluster: Callable[[], State],
        takes_in: Callable[[], bool],
    ) -> None:
        """`cluster`: returns this member's state of group 0; `takes_in`: whether this replica
        accepts bytes.
        """
        self._kept = kept
        self._group = group
        self._machine = machine
        self._coordinator = coordinator
        self._presence = presence
        self._clock = clock
        self._cluster = cluster
        self._takes_in = takes_in
        self._term = -1
        self._leads_since = 0.0
        self._asked: dict[int, str] = {}
        """Suspect -> for which of its lives it was proposed to let it in, in this term."""
        self._rounds: dict[int, tuple[float, dict[int, int]]] = {}
        """Replica -> since when, and what it must have merged durably."""
        self._left: set[object] = set()
        """Damaged inputs, and where, that were left to another leader."""

    def tick(self) -> None:
        """Take all steps that are due. To be called about four times a second, on the leader."""
        self._notice_term()
        done = list[KeeperStep]()
        while (step := next_step(self._kept.wanted(), self._observe(), done)) is not None:
            done.append(step)
            self._carry_out(step)

    def _notice_term(self) -> None:
        if self._term != self._group.raft.term:
            self._term, self._leads_since = self._group.raft.term, self._clock.now()
            self._asked.clear()
            self._rounds.clear()

    @property
    def is_to_yield(self) -> bool:
        """Whether this member leads, and another one should instead if any can."""
        return self._group.is_leader and (
            not self._takes_in()
            or bool(self._damage() - self._left)
            or is_in_maintenance(self._cluster(), self._presence.number, self._clock.wall_ms())
        )

    # --- what is known ----------------------------------------------------------------------------

    def _observe(self) -> Observed:
        raft, now, wall_ms = self._group.raft, self._clock.now(), self._clock.wall_ms()
        peers = tuple(self._peer(number, now, wall_ms) for number in raft.peers)
        lives = {each.number: self._kept.life(each.number) for each in peers}
        return Observed(
            self._presence.number,
            peers,
            raft.last_index,
            is_to_yield=self.is_to_yield,
            is_cut_off=self._presence.is_cut_off,
            is_transferring=raft.leadership is None or raft.leadership.transfer_to is not None,
            may_change=self._kept.may_change,
            may_prefer=self.may_prefer,
            asked={
                number
                for number, life in lives.items()
                if life is not None and self._asked.get(number) == life[0].incarnation
            },
        )

    def _peer(self, number: int, now: float, wall_ms: int) -> Peer:
        raft, life, cluster = self._group.raft, self._kept.life(number), self._cluster()
        progress, votes, counts = raft.progress(number), number in raft.voters, raft.counts(number)
        is_sure = life is None or life[1]
        is_asked = life is not None and number in cluster.members.by_number
        if votes and counts and is_sure:
            is_asked = False  # no step depends on it
        return Peer(
            number,
            votes=votes,
            counts=counts,
            is_sure=is_sure,
            is_there=self._presence.is_there(number),
            takes_in=self._presence.takes_in(number, now),
            is_resting=is_in_maintenance(cluster, number, wall_ms),
            is_cut_off=self._presence.said(number, now)[0].is_cut_off,
            match=0 if progress is None else progress.match,
            is_close=is_asked and self.is_close(number),
        )

    def has_entries(self, number: int) -> bool:
        """Whether a member has acknowledged entries to this leader; True on other nodes. A member
        that was bootstrapped and has none becomes suspect when it hears that the cluster has begun.
        """
        progress = self._group.raft.progress(number)
        return progress is None or progress.match > 0

    @property
    def may_prefer(self) -> bool:
        """Whether this member has led for long enough to give leadership to who is preferred."""
        return self._clock.now() - self._leads_since >= HOLD_S

    def _damage(self) -> set[object]:
        """Return inputs whose bytes are damaged at this member, each with its place: they wait for
        another leader. Each place counts once, because all nodes may have the same damaged bytes.
        """
        inputs = self._machine.state.sessions.inputs
        damaged = [each for each in self._coordinator.damaged_inputs() if each in inputs]
        return {(number, inputs[number].place) for number in damaged}

    def is_close(self, number: int) -> bool:
        """Return whether a replica has caught up with the log, has merged durably all records that
        are older than `round_s`, and has all files.
        """
        raft, state = self._group.raft, self._machine.state
        progress = raft.progress(number)
        if progress is None or progress.state is not ProgressState.REPLICATE:
            return False
        if raft.last_index - progress.match > CLOSE_ENTRIES:
            return False
        merged = self._coordinator.views[number].merged_durable
        wanted = self._round_of(number).items()
        has_merged = all(merged.get(n, 0) >= offset for n, offset in wanted if state.has_here(n))
        return has_merged and self.has_files(number)

    def has_files(self, number: int) -> bool:
        """Return whether a replica knows all archived files and their keys, and has all compacted
        segments. What the last replica with them takes along is lost.
        """
        kept = self._coordinator.views[number].files
        return all(
            has >= each
            for n, wanted in _files_of(self._machine.state)
            for has, each in zip(kept.get(n, NO_FILES), wanted, strict=True)
        )

    def _round_of(self, number: int) -> dict[int, int]:
        """Partition -> what a replica must have merged durably, as of lately."""
        began, wanted = self._rounds.get(number, (float("-inf"), {}))
        now = self._clock.now()
        if now - began > self._kept.round_s:
            known = self._machine.state.partitions.by_number.values()
            wanted = {each.number: each.next_offset for each in known}
            self._rounds[number] = now, wanted
        return wanted

    # --- what is done -----------------------------------------------------------------------------

    def _carry_out(self, step: KeeperStep) -> None:
        if step.kind is StepKind.READMIT:
            self._readmit(step.member)
        elif step.kind is StepKind.TRANSFER:
            damage = self._damage()
            if self.transfer(step.member):
                self._left |= damage
        else:
            self._kept.change(step)

    def _readmit(self, number: int) -> None:
        life = self._kept.life(number)
        if life is not None:
            with suppress(NotLeader, Busy):
                self._group.propose([LetIn(number, life[0].incarnation)])
                self._asked[number] = life[0].incarnation

    def transfer(self, to: int) -> bool:
        """Ask a voter that counts and is there to lead; whether it was asked."""
        raft = self._group.raft
        is_able = to in raft.voters and raft.counts(to) and self._presence.is_there(to)
        if raft.leadership is None or raft.leadership.transfer_to is not None or not is_able:
            return False
        raft.transfer_leadership(to, self._clock.now())
        self._group.pump()
        return True

    def hand_over(self, to: int) -> None:
        """Transfer leadership to a member that a task chose, if it has caught up. A new
        leader keeps leadership for HOLD_S.
        """
        raft = self._group.raft
        progress = raft.progress(to)
        is_near = progress is not None and raft.last_index - progress.match <= CLOSE_ENTRIES
        self._notice_term()
        if is_near and self.may_prefer:
            self.transfer(to)
