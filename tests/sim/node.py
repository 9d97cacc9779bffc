"""A simulated node: the driving loop of docs/raft.md around one core, with a crash possible at
every step of it.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections import deque
from typing import TYPE_CHECKING

from samelog.consensus import Configuration, Effects, Entry, Membership, Raft, Snapshot
from samelog.consensus.messages import Append, RaftMessage, VoteReply
from tests.sim.beating import Beating
from tests.sim.disk import Disk
from tests.sim.shipping import named

if TYPE_CHECKING:
    from tests.sim.world import World

_STATE = struct.Struct(">QI")


class Crash(Exception):
    """The node's power fails here."""


class SimNode:
    """One node. `number` is its id.

    `doubtful`: a loss of power may have taken what it had acknowledged, and it has not caught up.
    `wiped`: it lost its disk once and may not vote since; `trusted_disk` is the one it lost,
    because what it acknowledged with that one counted, rightly.
    """

    def __init__(self, world: World, number: int, *, joins: bool = False) -> None:
        """`joins`: it comes to a group that it does not know yet."""
        self.world = world
        self.number = number
        self.first = Membership((), ()) if joins else world.options.membership
        self.disk = Disk(number)
        self.trusted_disk = self.disk
        self.wiped = False
        self.doubtful = False
        self.up = False
        self.stays_away = False
        self.boot = 0
        self.slow_disk = False
        self.stands_until = 0.0
        self.crash_chance = world.options.crash_point_chance
        draw = world.chance
        skew = world.options.clock_skew
        self._rate = 1.0 + draw.uniform(-skew, skew)
        self._offset = draw.uniform(0, 1000)

    def __repr__(self) -> str:
        return f"node {self.number}"

    @property
    def now(self) -> float:
        """This node's own monotonic clock."""
        return self._offset + self.world.now * self._rate

    def vouched_for(self, index: int, term: int) -> bool:
        """Whether its acknowledgement of an entry was or would be true; what a loss of power took
        since is made up for by its doubt.
        """
        return self.doubtful or self.trusted_disk.holds(index, term)

    def has_bytes(self, entry: Entry) -> bool:
        """Whether what an entry names is durable here."""
        number, stored = named(entry), self.disk.bytes
        there = stored.written if self.world.options.lazy_sync else stored.durable
        return number is None or number in there

    def _has_received(self, entry: Entry) -> bool:
        number = named(entry)
        return number is None or number in self.disk.bytes.written

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Boot from what the disk holds."""
        snapshot, entries, hard_state = self.disk.recover()
        world = self.world
        self.up = True
        self.boot += 1
        world.trace.event(str(self), f"starts in term {hard_state.term}")
        self.led_term = 0
        self.seen_term = hard_state.term
        self._saves: deque[Effects] = deque()
        self._hard_state = hard_state
        self._syncing = False
        self._reads: dict[int, int] = {}
        self._boots: dict[int, int] = {}
        self.applied, self._chain = 0, 0
        if snapshot is not None:
            self._install(snapshot)
        self.raft = Raft(
            self.number,
            self.first.voters,
            learners=self.first.learners,
            config=world.options.config,
            random=random.Random(world.chance.getrandbits(32)),
            now=self.now,
            snapshot=snapshot,
            entries=entries,
            hard_state=hard_state,
            may_vote=not self.wiped,
            doubtful=self.doubtful,
        )
        if world.options.reach_chance:
            self.raft.require_bytes(self._has_received)
        self.beats = Beating(self)
        if world.options.quiet:
            self.raft.allow_quiet(self.beats.heard)
        self.seen_commit = self.raft.commit_index
        self._pump()
        if world.options.reach_chance:
            self.raft.cut_unbacked(self._has_received)
            if kept := self.raft.save_kept():
                self._save(kept)

    def crash(self) -> None:
        """Lose memory, and whatever the disk had not synced."""
        self.up = False
        if self.world.power_fails(self):
            self.world.trace.event(str(self), "crashes")
            self.disk.crash(self.world.chance)
            self.doubtful = self.world.options.lazy_sync
        else:
            self.world.trace.event(str(self), "is killed")
            self.disk.end_process()
        self.world.crashed(self)

    def wipe(self) -> None:
        """Lose the disk as well: the node comes back empty, and may not vote."""
        self.disk = Disk(self.number)
        self.wiped = True
        self.world.trace.event(str(self), "has an empty disk")

    # --- input ------------------------------------------------------------------------------------

    def receive(self, sender: int, boot: int, message: RaftMessage) -> None:
        """A message arrives. Before the first one of a life of its sender comes the word that it
        restarted; messages of an older life may arrive later.
        """
        self.meet(sender, boot)
        self.raft.step(sender, message, self.now)
        self._pump()

    def meet(self, sender: int, boot: int) -> None:
        """Something comes of this life of another node."""
        if boot > self._boots.get(sender, 0):
            self._boots[sender] = boot
            self.beats.lost(sender)
            self.raft.wake(self.now)
            self.raft.peer_restarted(sender)

    def wake(self) -> None:
        """It is not to rest any more."""
        self.raft.wake(self.now)
        self._pump()

    def tick(self, late_s: float) -> None:
        """Time passes; the loop came so late to this."""
        self.raft.tick(self.now, late_s)
        self._pump()

    def bytes_came(self) -> None:
        """More bytes are here, or durable."""
        if self.up:
            self.raft.bytes_came(self.now)
            self._pump()

    def release(self) -> None:
        """Remove bytes that a majority needs no more, once the commit index is durable."""
        if not self._saves and not self._syncing:
            self.disk.keep_commit(self.applied)
            self.world.shipping.release(self)

    def until_deadline(self) -> float:
        """Simulated seconds until the core wants a tick."""
        left = self.raft.next_deadline() - self._offset - self.world.now * self._rate
        return left / self._rate if left > 0.0 else 0.0

    def leader_lost(self) -> None:
        """The connection to the leader broke."""
        self.raft.leader_lost(self.now)
        self._pump()

    def propose(self, data: list[bytes]) -> int:
        """Propose entries; raises what the core raises."""
        first = self.raft.propose(data, self.now)
        self._pump()
        return first

    def configure(self, configuration: Configuration) -> None:
        """Propose other members; raises what the core raises."""
        self.raft.propose_configuration(configuration, self.now)
        self._pump()

    def transfer(self, to: int) -> None:
        """Hand leadership over."""
        if to in self.raft.voters and self.raft.counts(to):
            self.raft.transfer_leadership(to, self.now)
            self._pump()

    def read(self, context: int) -> None:
        """Ask for a linearizable read."""
        self._reads[context] = self.world.checker.committed_index
        self.raft.read_index(context, self.now)
        self._pump()

    def compact(self) -> None:
        """Snapshot everything applied, and cut the log somewhere behind."""
        if self._saves or self.applied < self.raft.first_index:
            return
        index = self.world.chance.randint(self.raft.first_index, self.applied)
        data = _STATE.pack(self.applied, self._chain) + bytes(self.world.options.snapshot_bytes)
        term = self.raft.term_at(self.applied)
        members = self.raft.membership_at(self.applied)
        if not members.voters:  # who has joined knows of nobody before the first change
            return
        snapshot = Snapshot(self.applied, term, members.voters, members.learners, data)
        self.disk.compact(index, snapshot)
        self.raft.compact(index, snapshot)

    # --- the driving loop -------------------------------------------------------------------------

    def _pump(self) -> None:
        while effects := self.raft.take_effects():
            self._carry_out(effects)
        self.doubtful = self.doubtful and self.raft.is_doubtful
        self.beats.look()
        self.world.checker.state(self)
        waits_for = self.raft.held_back
        if waits_for is not None and (number := named(waits_for)) is not None:
            self.world.shipping.wanted(self, number)

    def _carry_out(self, effects: Effects) -> None:
        checker = self.world.checker
        self._crash_point()
        checker.effects(self, effects)
        checker.state(self)
        self._send(effects.send)
        self._crash_point()
        if effects.snapshot is not None:
            self._install(effects.snapshot)
        if effects.entries or effects.hard_state is not None or effects.snapshot is not None:
            self.disk.write(effects)
        self._crash_point()
        for entry in effects.apply:
            self._apply(entry)
        for context, index in effects.reads:
            floor = self._reads.pop(context)
            if index is not None:
                checker.read_answered(self, floor, index)
        self._save(effects)

    def _save(self, effects: Effects) -> None:
        if self._saves or self._waits_for_sync(effects):
            self._saves.append(effects)
            self._start_sync()
        else:
            self.disk.trust(len(self.disk.wal))
            self._finish(effects)

    def _waits_for_sync(self, effects: Effects) -> bool:
        """Term and vote are durable in every mode."""
        state, known = effects.hard_state, self._hard_state
        self._hard_state = known if state is None else state
        if not self.world.options.lazy_sync or effects.snapshot is not None:
            return effects.must_sync
        return state is not None and (state.term, state.vote) != (known.term, known.vote)

    def _start_sync(self) -> None:
        if not self._syncing:
            self._syncing = True
            count, position = len(self._saves), len(self.disk.wal)
            names = frozenset(self.disk.bytes.written)
            self.world.after_sync(self, lambda: self._end_sync(count, position, names))

    def _end_sync(self, count: int, position: int, names: frozenset[int]) -> None:
        """One round makes the log durable, and the bytes that its entries name."""
        self._crash_point()
        if self.world.chance_of_half_a_sync(self):
            self.disk.end_sync(position)
            raise Crash
        self.disk.end_sync(position)
        self.disk.bytes.synced(names)
        self._syncing = False
        for _ in range(count):
            self._finish(self._saves.popleft())
        if self._saves:
            self._start_sync()
        self._pump()

    def _finish(self, effects: Effects) -> None:
        self.raft.saved(effects.token)
        self._crash_point()
        self._send(effects.send_after_save)
        if any(isinstance(message, VoteReply) for _, message in effects.send_after_save):
            self._crash_point(self.world.options.vote_crash_chance)

    @property
    def is_young(self) -> bool:
        """Whether it has not handed out its own term's no-op, thus all older entries, as leader."""
        lead = self.raft.leadership
        return lead is None or self.raft.applied < lead.noop_index

    def _send(self, messages: list[tuple[int, RaftMessage]]) -> None:
        for to, message in messages:
            self.world.checker.sent(self, to, message)
            self.world.send(self, to, message)
            if isinstance(message, Append) and self.is_young:
                self._crash_point(self.world.options.young_leader_crash_chance)

    def _crash_point(self, chance: float | None = None) -> None:
        if chance is None:
            chance = self.crash_chance
        if chance and self.world.crash_here(chance):
            raise Crash

    # --- the state machine ------------------------------------------------------------------------

    def _apply(self, entry: Entry) -> None:
        self._chain = zlib.crc32(entry.data, zlib.crc32(b"%d" % entry.term, self._chain))
        self.world.checker.applied(self, entry, self._chain)
        self.world.shipping.applied(entry)
        self.applied = entry.index

    def _install(self, snapshot: Snapshot) -> None:
        applied, chain = _STATE.unpack_from(snapshot.data)
        if applied != snapshot.last_index:
            raise AssertionError(f"snapshot {snapshot.last_index} holds the state of {applied}")
        self.world.checker.installed(self, applied, chain)
        self.applied, self._chain = applied, chain
