"""The driver of one Raft group: it feeds the pure core, makes its effects durable, sends and
applies.

Saves are written to the log file in the order the core asks for them and made durable in rounds;
what depends on a save (votes, acknowledgements) leaves only behind it. With `fsync=interval` only
term and vote wait for the disk.

Invariant: effects are carried out in the order the core gave them, and nothing marked "after save"
leaves before. While the disk has no room for a save, it and all later effects wait; the other
members elect a leader without this one.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Protocol

from msgspec.structs import replace

from samelog.consensus import (
    Configuration,
    Effects,
    Entry,
    HardState,
    HistoryConflict,
    NotLeader,
    Raft,
    Role,
    Snapshot,
)
from samelog.consensus.effects import NOTHING
from samelog.format.errors import InvariantError
from samelog.runtime.clock import Clock
from samelog.runtime.counters import FAST_S, Histogram
from samelog.runtime.log import log_event
from samelog.sequencer.levels import LOWEST, OtherVersion
from samelog.sequencer.raft.deadline import DeadlineTimer
from samelog.sequencer.raft.elections import ElectionLog, SeenElection
from samelog.sequencer.raft.entry_bytes import EntryBytes
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.raft.write_room import WriteRoom
from samelog.sequencer.state.commands import AnyCommand, encode_commands
from samelog.sequencer.state.tables.members import SetMembers
from samelog.sequencer.state.tables.placement import SetReplicas
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import DiskFault

log = logging.getLogger(__name__)

HALTING = (HistoryConflict, OtherVersion)
_NEEDS_SYNC: Callable[[tuple[Effects, bool]], bool] = itemgetter(1)


class Applier(Protocol):
    """The state machine side of a group."""

    @property
    def level(self) -> int:
        """The cluster's feature level."""

    def apply(self, entry: Entry) -> list[Any]:
        """Apply a committed entry; one outcome for each of its commands. Raises OtherVersion, and
        CommitNotKept, before anything has changed.
        """

    def install(self, snapshot: Snapshot) -> None:
        """Replace the state by a leader's snapshot, which is durable. Raises OtherVersion."""

    def role_changed(self) -> None:
        """The node became or ceased to be leader, or learnt of another leader."""


class ProposalLost(Exception):
    """Leadership ended before the proposal was known to be committed: it may or may not be."""


class CommitNotKept(NoSpace):
    """The disk has no room for the commit index, which must be durable before files are removed."""


class RaftGroup:
    """Runs one Raft core on the event loop."""

    def __init__(
        self,
        raft: Raft,
        store: RaftStore,
        *,
        clock: Clock,
        send: Callable[[int, Sequence[Any]], None],
        applier: Applier,
        entry_bytes: EntryBytes,
        on_fault: Callable[[Exception], None],
        after_pump: Callable[[], None] | None = None,
    ) -> None:
        """`on_fault`: what the core wanted could not be done, and it will not ask again: this node
        takes no part any more. `after_pump` is called when the core has moved.
        """
        self.raft = raft
        self.applied_index = store.applied_index
        self._store = store
        self._clock = clock
        self._send = send
        self._applier = applier
        self.entry_bytes = entry_bytes
        self._saves: list[tuple[Effects, bool]] = []
        """Whose messages wait for the disk, and whether for a sync."""
        self._saver_waits: asyncio.Future[None] | None = None
        self._room = WriteRoom(self.pump)
        self._waiting: dict[int, tuple[int, asyncio.Future[list[Any]]]] = {}
        self._proposed: list[tuple[int, float]] = []
        """(index, when) of what was proposed here and is not applied."""
        self.commit_times = Histogram(FAST_S)
        """From proposing to applying, in seconds."""
        self._elections = ElectionLog(raft, store.number, clock.wall_ms)
        self._reads: dict[int, asyncio.Future[int | None]] = {}
        self._next_read = 0
        self._hard_state: HardState | None = store.hard_state
        self._pumping = False
        self._on_fault = on_fault
        self._fault: Exception | None = None
        """Why this replica takes no part any more. After a failed sync (DiskFault) nothing written
        before it may ever be called durable.
        """
        self._timer = DeadlineTimer(raft, clock, self._tick_now)
        self._after_pump = after_pump

    @property
    def halted(self) -> str:
        """Why this replica takes no part any more, and what to do: its history is contradicted, or
        it met what it does not know. Empty: it does. Its files stay as they are.
        """
        fault = self._fault
        return f"{fault}; {fault.remedy}" if isinstance(fault, HALTING) else ""

    @property
    def is_leader(self) -> bool:
        """Whether this node leads and may plan: its own term's no-op is applied."""
        raft = self.raft
        lead = raft.leadership
        return lead is not None and raft.applied >= lead.noop_index and self._fault is None

    @property
    def rounds_s(self) -> Sequence[float]:
        """How long the newest rounds of syncs took."""
        return self.entry_bytes.rounds_s

    @property
    def elections(self) -> int:
        """Leaders seen elected since the start."""
        return self._elections.count

    @property
    def newest_elections(self) -> Sequence[SeenElection]:
        """The newest of them, oldest first."""
        return self._elections.newest

    @property
    def lag(self) -> dict[int, int]:
        """Other member -> entries that it lacks; empty if this node does not lead."""
        raft = self.raft
        known = {number: raft.progress(number) for number in raft.peers}
        return {n: raft.last_index - each.match for n, each in known.items() if each is not None}

    @property
    def unsaved(self) -> int:
        """Batches of effects that wait for the disk."""
        return len(self._saves)

    @property
    def is_busy(self) -> bool:
        """Whether anything waits for the disk, for a commit or for a leader's word."""
        return bool(self._saves or self._waiting or self._reads)

    # --- input ------------------------------------------------------------------------------------

    def receive(self, sender: int, messages: Sequence[Any]) -> None:
        """Messages of a peer. One that contradicts what is committed here halts the replica."""
        if self.halted:
            return
        now = self._clock.now()
        try:
            for message in messages:
                self.raft.step(sender, message, now)
        except HistoryConflict as conflict:
            self.halt(conflict)
        self.pump()

    def begin(self) -> None:
        """Apply what is known to be committed; of what else the log has, forget what this node has
        never acknowledged, because its bytes are not here. The rest counts once its bytes, which
        an earlier process may have written without syncing them, are durable. Raises NoSpace.
        """
        self.pump()
        if self.halted:
            return
        if self._store.unwritten is not None:  # entries may name inputs that these open
            raise NoSpace(self._store.log.directory, "write to", errno.ENOSPC)
        self.raft.cut_unbacked(self.entry_bytes.is_kept)
        if self.entry_bytes.sync_always and (kept := self.raft.save_kept()):
            self._queue_save(kept)

    def halt(self, reason: HistoryConflict | OtherVersion) -> None:
        """Take no part any more; the process stays, to say why."""
        self._fault = reason
        self.end()
        log_event(log, logging.CRITICAL, "replica halted", reason=reason, remedy=reason.remedy)

    def tick(self, late_s: float = 0.0) -> None:
        """Let time pass; `run_ticks` does, whenever the core has something to do."""
        if not self.halted:
            self.raft.tick(self._clock.now(), late_s)
            self.pump()

    def loop_delayed(self, by_s: float) -> None:
        """The event loop ran so late."""
        self.raft.loop_delayed(by_s, self._clock.now())

    def bytes_came(self) -> None:
        """Bytes that entries may name are durable here, or it is known now what they are of."""
        if not self.halted:
            self.raft.bytes_came(self._clock.now())
            self.pump()

    def leader_lost(self) -> None:
        """The connection to the leader broke."""
        self._elections.lost_connection()
        if self.halted:
            return
        self.raft.leader_lost(self._clock.now())
        self.pump()

    def propose(
        self, commands: Sequence[AnyCommand], outcomes: asyncio.Future[list[Any]] | None = None
    ) -> int:
        """Propose one entry: its index. Raises NotLeader, Busy.

        `outcomes`: of its commands, for who waits for them; it fails with ProposalLost when another
        leader's entry takes the index.
        """
        if not self.is_leader:
            raise NotLeader(self.raft.leader)
        for command in commands:
            if command.needs > LOWEST and command.needs > self._applier.level:
                raise InvariantError(f"{type(command).__name__} needs level {command.needs}")
        now = self._clock.now()
        index = self.raft.propose([encode_commands(commands)], now)
        self._proposed.append((index, now))
        if outcomes is not None:
            self._waiting[index] = (self.raft.term, outcomes)
        self.pump()
        return index

    def ask(self, commands: Sequence[AnyCommand]) -> tuple[int, asyncio.Future[list[Any]]]:
        """Propose one entry: its index, and its commands' outcomes. Raises as `propose`."""
        outcomes: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        return self.propose(commands, outcomes), outcomes

    def propose_members(self, command: SetMembers) -> asyncio.Future[list[Any]]:
        """Propose other members, which hold for Raft at once. Raises what the core raises."""
        voters = tuple(member.number for member in command.members if member.voter)
        learners = tuple(member.number for member in command.members if not member.voter)
        return self._configure(Configuration(voters, learners, encode_commands([command])))

    def propose_replicas(self, command: SetReplicas) -> asyncio.Future[list[Any]]:
        """The same for a data group, whose replicas are not all members."""
        voters = tuple(each.member for each in command.replicas if each.votes)
        learners = tuple(each.member for each in command.replicas if not each.votes)
        return self._configure(Configuration(voters, learners, encode_commands([command])))

    def _configure(self, configuration: Configuration) -> asyncio.Future[list[Any]]:
        index = self.raft.propose_configuration(configuration, self._clock.now())
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting[index] = (self.raft.term, future)
        self.pump()
        return future

    async def read_index(self) -> int | None:
        """An index that, once applied here, makes this node's state current; None if no leader
        confirms.
        """
        context, self._next_read = self._next_read, self._next_read + 1
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._reads[context] = future
        try:
            self.raft.read_index(context, self._clock.now())
            self.pump()
            async with asyncio.timeout(2.0):  # wait_for may lose a cancellation (Python 3.11)
                return await future
        except (TimeoutError, NotLeader):
            return None
        finally:
            self._reads.pop(context, None)

    # --- output -----------------------------------------------------------------------------------

    def pump(self) -> None:
        """Carry out whatever the core wants done, until it wants nothing more."""
        if self._pumping or self._fault is not None:
            return
        self._pumping = True
        try:
            if (unwritten := self._store.unwritten) is not None:
                self._store.unwritten = None
                self._carry_out(unwritten)
                self._room.found()
            while self.raft.touched and (effects := self.raft.take_effects()) is not NOTHING:
                self._carry_out(effects)
        except Exception as error:  # noqa: BLE001 - the seam: the caller is not at fault
            self._failed(error)
        finally:
            self._pumping = False
        if self.raft.next_deadline() < self._timer.at:
            self._timer.begin()
        if self._after_pump is not None:
            self._after_pump()

    def _failed(self, error: Exception) -> None:
        """Effects could not be carried out: wait for room, halt, or stop."""
        match error:
            case InvariantError():
                raise error
            case NoSpace() if (unwritten := self._store.unwritten) is not None:
                self._store.unwritten = replace(unwritten, send=[])  # that has left
                self._room.wait(error)
            case OtherVersion():
                self.halt(error)
            case _:
                self._fault = error
                self._on_fault(error)

    def _carry_out(self, effects: Effects) -> None:
        """Raises NoSpace: `store.unwritten` has the rest, without messages that have left."""
        if effects.send:
            self._send_all(effects.send)
        saves = bool(effects.entries or effects.snapshot) or effects.hard_state is not None
        if saves:
            self._store.write(effects)
        if saves or effects.send_after_save:
            self._queue_save(effects)
        if effects.snapshot is not None:
            self._applier.install(effects.snapshot)
            self.applied_index = effects.snapshot.last_index
        if effects.apply:
            self._apply(effects)
        if effects.reads:
            self._answer_reads(effects.reads)
        if effects.role_changed:
            self._fail_lost_proposals()
            self._elections.note()
            self._applier.role_changed()

    def _apply(self, effects: Effects) -> None:
        try:
            for entry in effects.apply:
                outcomes = self._applier.apply(entry)
                self.applied_index = index = entry.index
                while self._proposed and self._proposed[0][0] <= index:
                    proposed, at = self._proposed.pop(0)
                    if proposed == index:
                        self.commit_times.observe(self._clock.now() - at)
                if (waiting := self._waiting.pop(index, None)) is not None:
                    _answer(*waiting, entry, outcomes)
        except CommitNotKept:
            left = [entry for entry in effects.apply if entry.index > self.applied_index]
            self._store.unwritten = replace(
                NOTHING, apply=left, reads=effects.reads, role_changed=effects.role_changed
            )
            raise

    def _answer_reads(self, reads: Sequence[tuple[int, int | None]]) -> None:
        for context, index in reads:
            future = self._reads.get(context)
            if future is not None and not future.done():
                future.set_result(index)

    def _queue_save(self, effects: Effects) -> None:
        needs_sync = effects.must_sync and (
            self.entry_bytes.sync_always or self._must_always_sync(effects)
        )
        if not needs_sync and not self._saves:
            self._finish(effects)
            return
        self._saves.append((effects, needs_sync))
        if self._saver_waits is not None and not self._saver_waits.done():
            self._saver_waits.set_result(None)

    def _must_always_sync(self, effects: Effects) -> bool:
        """Term and vote, and installed snapshots, are durable in every mode."""
        hard_state, known = effects.hard_state, self._hard_state
        if hard_state is not None:
            self._hard_state = hard_state
        if effects.snapshot is not None:
            return True
        if hard_state is None:
            return False
        is_new = known is None or (known.term, known.vote) != (hard_state.term, hard_state.vote)
        if is_new:
            self._elections.note()
        return is_new

    def _finish(self, effects: Effects) -> None:
        self.raft.saved(effects.token)
        if effects.send_after_save:
            self._send_all(effects.send_after_save)

    def _send_all(self, messages: Sequence[tuple[int, Any]]) -> None:
        if len(messages) == 1:
            self._send(messages[0][0], [messages[0][1]])
            return
        by_peer: dict[int, list[Any]] = defaultdict(list)
        for to, message in messages:
            by_peer[to].append(message)
        for to, grouped in by_peer.items():
            self._send(to, grouped)

    def _fail_lost_proposals(self) -> None:
        """Answer proposals of older terms: waiting does not tell whether they are committed. A
        group of one may step down and lead again in one step.
        """
        term = self.raft.term if self.raft.role is Role.LEADER else None
        lost = {index for index, (proposed_in, _) in self._waiting.items() if proposed_in != term}
        for index in lost:
            _, future = self._waiting.pop(index)
            if not future.done():
                future.set_exception(ProposalLost())
        if term is None:
            self._proposed.clear()

    def end(self) -> None:
        """Answer every request that waits for this replica, which stops: none of its entries is
        applied any more.
        """
        for _, future in self._waiting.values():
            if not future.done():
                future.set_exception(ProposalLost())
        self._waiting.clear()
        for read in self._reads.values():
            if not read.done():
                read.set_result(None)

    # --- time -------------------------------------------------------------------------------------

    async def run_ticks(self) -> None:
        """Keep the core's deadlines, until cancelled: between them an idle node sleeps."""
        self._timer.begin()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._timer.end()
            self._room.cancel()

    def _tick_now(self, late_s: float) -> None:
        try:
            self.tick(late_s)
        except Exception as error:  # noqa: BLE001 - a timer's error would end nothing
            self._on_fault(error)
        else:
            if not self.halted:
                self._timer.begin()

    def wake(self) -> None:
        """The replica is not to rest any more: another one does not, or is silent."""
        if not self.halted:
            self.raft.wake(self._clock.now())
            self.pump()

    def become_suspect(self) -> None:
        """This member may have forgotten what it promised here: it counts for nothing."""
        self.raft.wake(self._clock.now())
        self.raft.become_suspect()
        self.pump()

    def hand_over(self) -> None:
        """Let the most advanced of the other voters lead, if this replica does."""
        raft = self.raft
        known = {number: raft.progress(number) for number in raft.voters if raft.counts(number)}
        matches = {number: each.match for number, each in known.items() if each is not None}
        if raft.role is Role.LEADER and matches:
            raft.transfer_leadership(
                max(matches, key=lambda each: matches[each]), self._clock.now()
            )
            self.pump()

    def peer_restarted(self, number: int) -> None:
        """A member is in another life: what its replica acknowledged before counts no more."""
        if not self.halted:
            self.raft.wake(self._clock.now())
            self.raft.peer_restarted(number)
            self.pump()

    # --- durability -------------------------------------------------------------------------------

    def keep_commit(self) -> None:
        """Make durable, at once, that what is applied is committed: what it names is about to go,
        and a node that does not know that could get it from no other one. Raises CommitNotKept,
        DiskFault.
        """
        try:
            is_new = self._store.write_commit(self.raft.applied)
        except NoSpace as fault:
            raise CommitNotKept(fault.path, fault.operation, fault.error_number) from fault
        if is_new:
            self._store.log.sync()

    async def keep_commit_soon(self) -> None:
        """The same, with the next round of syncs."""
        if self._store.write_commit(self.raft.applied):
            await self.sync_now()

    async def run_saver(self) -> None:
        """Make saves durable, round after round, until cancelled. Raises DiskFault when the disk
        fails.
        """
        loop = asyncio.get_running_loop()
        while True:
            if not self._saves:
                self._saver_waits = loop.create_future()
                await self._saver_waits
            round_size = len(self._saves)
            if any(map(_NEEDS_SYNC, self._saves)):
                began = self._clock.now()
                await self._sync(tuple(self._saves))
                self.entry_bytes.rounds_s.append(self._clock.now() - began)
            for effects, _ in self._saves[:round_size]:
                self._finish(effects)
            del self._saves[:round_size]
            self.pump()

    async def sync_now(self) -> None:
        """Make everything written to the log durable. Raises DiskFault, and from then on always:
        no group of this member takes part any more.
        """
        await self._sync(())

    async def _sync(self, saves: Sequence[tuple[Effects, bool]]) -> None:
        """One round for the log and for the bytes that the entries of these saves name."""
        entries: list[Entry] = []
        for effects, _ in saves:
            entries += effects.entries
        try:
            file, mark = self._store.log.unsynced()
            await self.entry_bytes.sync(entries, () if file is None else (file,))
            self._store.log.synced(mark)
        except DiskFault as fault:
            self._fault = fault
            self._store.log.fail(fault)
            raise


def _answer(
    term: int, future: asyncio.Future[list[Any]], entry: Entry, outcomes: list[Any]
) -> None:
    """Give the proposer of an entry in `term` its outcomes, or report that another replaced it."""
    if future.done():
        return
    if term == entry.term:
        future.set_result(outcomes)
    else:
        future.set_exception(ProposalLost())
