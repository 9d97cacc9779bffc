"""What a node does all the time, whoever leads: the ticks of its parts, lazily saved marks, a look
at its disk, and, on the leader, the expiry of what is idle.

Invariant: a full disk costs nothing here but older marks, which are as safe.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from samelog.consensus import Busy, NotLeader
from samelog.runtime.log import log_event
from samelog.sequencer.raft.group import forget_outcome
from samelog.sequencer.state.commands import AnyCommand, RecordEvent
from samelog.sequencer.state.expiry import due
from samelog.store.disk.disk_errors import NoSpace
from samelog.wire.bounds import Health

if TYPE_CHECKING:
    from samelog.sequencer.host import Host
    from samelog.sequencer.node import Node

log = logging.getLogger(__name__)

TICK_S = 0.05
CHANGES_INTERVAL_S = 0.25
MARKS_INTERVAL_S = 1.0
EXPIRY_INTERVAL_S = 60.0


class Housekeeper:
    """One node's housekeeping."""

    def __init__(self, node: Node, host: Host) -> None:
        self._node = node
        self._host = host
        self._told_term = -1
        self._next_changes = node.clock.now()
        self._next_marks = node.clock.now() + MARKS_INTERVAL_S
        self._next_expiry = node.clock.now() + EXPIRY_INTERVAL_S

    async def run(self) -> None:
        """Until cancelled."""
        node = self._node
        while True:
            due = node.clock.now() + TICK_S
            await asyncio.sleep(TICK_S)
            node.measures.loop_delay.observe(max(0.0, node.clock.now() - due))
            node.reporter.tick()
            node.coordinator.tick()
            node.repair.tick()
            node.following.tick()
            now = node.clock.now()
            if now >= self._next_changes:
                self._next_changes = now + CHANGES_INTERVAL_S
                node.changes.tick()
            if now >= self._next_marks:
                self._next_marks = now + MARKS_INTERVAL_S
                self._each_second()

    def _each_second(self) -> None:
        node = self._node
        node.directory.check_is_there()
        if node.watched is not None:
            node.watched.look()
        self.watch_disk()
        if node.intake.stopped is not None and node.group.is_leader:
            node.changes.give_leadership_away()  # it takes nothing in, so it plans nothing
        self._save_marks()
        self._care_about_doubt()
        node.listen_to_peers_again()
        node.archive.history.fetch_missing()
        node.run_keeper.tick(node.clock.now(), is_leader=node.group.is_leader)
        if node.clock.now() >= self._next_expiry:
            self._next_expiry = node.clock.now() + EXPIRY_INTERVAL_S
            self._expire()

    def watch_disk(self) -> None:
        """Tell the intake how much it may accept: what is free below the limit, less what is
        accepted and not merged. The rest of the disk is Raft's.
        """
        node = self._node
        usage = self._host.disk_usage(node.config.data)
        total = usage.used + usage.free
        unmerged = node.quotas.look(total)
        pending = sum(merge.size for merge in node.merging.pending())
        limit = total * node.config.disk_stop_percent // 100
        room = limit - usage.used - unmerged - pending
        used = max(0, usage.used - node.archive.truncation.pending_bytes)
        now_ms = max(0, node.clock.wall_ms())
        node.reporter.state_health(Health(used, total, now_ms, node.archive.policy.text))
        node.intake.room.set(room, resume_at_bytes=total // 20)

    def _save_marks(self) -> None:
        """Persist the durable marks; a full disk only leaves older ones."""
        try:
            self._node.sessions.save_marks()
            self._node.merging.save_marks()
        except NoSpace as fault:
            log_event(log, logging.WARNING, "durable marks not saved", error=fault)

    def _care_about_doubt(self) -> None:
        """After a loss of power with `fsync=interval`: forget doubt that is over, and leave a
        record where committed entries may be lost.
        """
        node, raft = self._node, self._node.group.raft
        if node.directory.record.doubtful and not raft.is_doubtful:
            node.directory.is_whole_again()
        if raft.is_elected_in_doubt and raft.term != self._told_term:
            text = (
                f"{node.config.name} leads term {raft.term} from entry {raft.commit_index} on by"
                " the votes of all, after too many hosts went down with fsync=interval: what was"
                " acknowledged just before may be lost"
            )
            if self._propose(RecordEvent(node.clock.wall_ms(), "possible-loss", text)):
                self._told_term = raft.term

    def _propose(self, command: AnyCommand) -> bool:
        """Whether it was proposed; what becomes of it the applied entry says."""
        try:
            forget_outcome(self._node.group.propose([command])[1])
        except (NotLeader, Busy):
            return False
        return True

    def _expire(self) -> None:
        """Propose what the leader finds idle; what is not decided is looked at again later."""
        node = self._node
        if not node.group.is_leader:
            return
        command = due(
            node.replica.machine,
            node.clock.wall_ms(),
            node.config.expiry,
            is_released=node.replica.is_released,
        )
        if command is not None:
            self._propose(command)
        for ending in node.staging.abandoned():
            self._propose(ending)
