"""What the leader proposes by itself now and then: forgetting what is idle, ending what was staged
and never published, aborting transactions that are overdue, and a record of possible loss.

Invariant: whatever could not be proposed now is found again the next time.
"""

from __future__ import annotations

from collections.abc import Callable

from samelog.config.tables.node import NodeConfig
from samelog.consensus import Busy, NotLeader
from samelog.runtime.clock import Clock
from samelog.sequencer.cluster.staging import Staging
from samelog.sequencer.cluster.upgrade import Upgrade
from samelog.sequencer.ingest.quotas import NodeQuotas
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.expiry import crowded, due, idle_transactions, overdue
from samelog.sequencer.state.tables.events import RecordEvent

EXPIRY_INTERVAL_S = 60.0


class LeaderUpkeep:
    """One replica's; only the leader's proposes."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        group: RaftGroup,
        replica: Replica,
        staging: Staging,
        upgrade: Upgrade,
        quotas: NodeQuotas,
        clock: Clock,
        abort_forgotten: Callable[[int], None],
    ) -> None:
        """`abort_forgotten`: called with the time in ms, aborts what group 0 has forgotten."""
        self._config = config
        self._group = group
        self._replica = replica
        self._staging = staging
        self._upgrade = upgrade
        self._quotas = quotas
        self._clock = clock
        self._abort_forgotten = abort_forgotten
        self._told_term = -1
        self._told_ahead: dict[int, int] = {}
        self._next_expiry = clock.now() + EXPIRY_INTERVAL_S

    def tick(self) -> None:
        """To be called about once a second."""
        self._tell_of_doubt()
        self._tell_of_the_forgotten()
        if (first := self._upgrade.first_level()) is not None:
            self._propose(first)
        if self._group.is_leader and self._clock.is_agreed:
            for late in overdue(self._replica.machine, self._clock.wall_ms()):
                self._propose(late)
            self._forget_crowded()
        if self._clock.now() >= self._next_expiry:
            self._next_expiry = self._clock.now() + EXPIRY_INTERVAL_S
            self._expire()

    def _tell_of_doubt(self) -> None:
        """After a loss of power with `fsync=interval`: leave a record where committed entries may
        be lost.
        """
        raft = self._group.raft
        if raft.is_elected_in_doubt and raft.term != self._told_term:
            text = (
                f"{self._config.name} leads term {raft.term} from entry {raft.commit_index} on by"
                " the votes of all, as too many had been put back, copied or wiped, or had gone"
                " down with fsync=interval: what was acknowledged last may be lost"
            )
            if self._propose(RecordEvent(self._clock.wall_ms(), "possible-loss", text)):
                self._told_term = raft.term

    def _tell_of_the_forgotten(self) -> None:
        """Leave a record of a voter that acknowledged what this leader does not have."""
        raft = self._group.raft
        for number, index in raft.trust.ahead.items():
            if self._told_ahead.get(number) == raft.term:
                continue
            text = (
                f"node {number} acknowledged entry {index}, and {self._config.name} leads term "
                f"{raft.term} with {raft.last_index}: a majority forgot what was committed. Keep "
                "all data directories"
            )
            if self._propose(RecordEvent(self._clock.wall_ms(), "history-lost", text)):
                self._told_ahead[number] = raft.term

    def _forget_crowded(self) -> None:
        """Forget sessions of identities of which too many are remembered."""
        machine, quotas = self._replica.machine, self._quotas.quotas
        found = crowded(machine, quotas, is_released=self._replica.is_released)
        if found is not None:
            self._propose(found)

    def _expire(self) -> None:
        if not (self._group.is_leader and self._clock.is_agreed):
            return
        machine, now_ms, expiry = self._replica.machine, self._clock.wall_ms(), self._config.expiry
        idle = due(machine, now_ms, expiry, is_released=self._replica.is_released)
        for command in (idle, idle_transactions(machine, now_ms, expiry)):
            if command is not None:
                self._propose(command)
        for ending in self._staging.abandoned():
            self._propose(ending)
        self._abort_forgotten(now_ms)

    def _propose(self, command: AnyCommand) -> bool:
        """Whether it was proposed; what becomes of it the applied entry says."""
        try:
            self._group.propose([command])
        except (NotLeader, Busy):
            return False
        return True
