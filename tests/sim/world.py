"""The world: an event queue over simulated time, a network that loses its manners, and a plan of
faults.

First a safety phase, in which anything may fail at any time; then everything is healed, and the
group must make progress within bounded simulated time.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

from samelog.consensus import (
    Busy,
    ChangePending,
    Configuration,
    GroupMessages,
    Membership,
    NotLeader,
    Role,
    decode_groups,
    encode_groups,
)
from samelog.consensus.messages import RaftMessage
from samelog.consensus.quorum import majority
from tests import tiers
from tests.sim.checker import Checker, Violation
from tests.sim.node import Crash, SimNode
from tests.sim.options import Options
from tests.sim.progress import check_progress
from tests.sim.shipping import Shipping
from tests.simulation.trace import Trace

TICK_S = 0.02
TIMERS_FIRST_S = 1e-6
"""A loop that comes to itself runs its timers first."""
SETTLED_S = 10.0
ELECTIONS_MAX = 3
"""Of starved nodes, once they have settled: a leader that lives is to stay."""
MOST_EVENTS = 4_000_000
"""Many times what the busiest world needs: 408,000 (seed 139467)."""


class World:
    """One simulated group and all that happens to it."""

    def __init__(self, options: Options, *, is_verbose: bool = False) -> None:
        tiers.require("simulates")
        self.options = options
        self.trace = Trace(lambda: self.now, is_verbose=is_verbose)
        self.faults = 0
        """How many were planned so far."""
        self.chance = random.Random(options.seed)
        self.now = 0.0
        self.healed = False
        self.is_idle = False
        """Nobody proposes or reads any more."""
        self.events = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self._cuts: set[tuple[int, int]] = set()
        self._last_arrival: defaultdict[tuple[int, int], float] = defaultdict(float)
        self._counter = itertools.count(1)
        self.shipping = Shipping(self)
        size = options.voters + options.learners
        self.nodes: list[SimNode] = []
        self.checker = Checker(self.nodes, self.trace)
        self.nodes.extend(SimNode(self, number) for number in range(size))

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Both phases. Raises Violation, or whatever a node raises."""
        for node in self.nodes:
            self._guard(node, node.start)
            self._start_ticking(node)
            if self.options.stalls_s:
                self._stall(node)
        self._repeat(self.options.fault_every_s, self._fault)
        self._repeat(self.options.proposal_every_s, self._propose)
        self._repeat(self.options.read_every_s, self._read)
        if self.options.reach_chance:
            self._repeat(0.1, self._release)
        if self.options.quiet:
            self._repeat(self.options.config.heartbeat_s, self._beat)
        if self.options.changes:
            self._repeat(min(self.options.fault_every_s, 0.2), self._change)
        self.run_until(min(SETTLED_S, self.options.safety_s), None)
        elections = self.checker.elections
        self.run_until(self.options.safety_s, None)
        elections = self.checker.elections - elections
        if self.options.stalls_s and elections > ELECTIONS_MAX:
            raise Violation(f"late nodes elect again and again: {elections} times")
        self._heal()
        check_progress(self)

    def run_until(self, end: float, done: Callable[[], bool] | None) -> bool:
        """Let time pass until then, or something holds; whether it does."""
        queue = self._queue
        while queue and queue[0][0] <= end:
            self.now, _, action = heapq.heappop(queue)
            self.events += 1
            if self.events > MOST_EVENTS:
                raise Violation("messages multiply without end")
            action()
            if done is not None and done():
                return True
        self.now = end
        return False

    def _heal(self) -> None:
        self.healed = True
        self.trace.event("world", "is healed")
        self._cuts.clear()
        if self.options.minority_stays_away:
            for node in self.chance.sample(self.nodes, (self.options.voters - 1) // 2):
                node.stays_away = True
                if node.up:
                    node.crash()
        for node in self.nodes:
            node.slow_disk = False
            if not node.up and not node.stays_away:
                self._guard(node, node.start)

    def applied_everywhere(self, index: int) -> bool:
        """Whether all members have applied an entry."""
        members = self.checker.membership
        there = [node for node in self.nodes if node.number in members and not node.stays_away]
        return all(node.applied >= index for node in there)

    def nodes_state(self) -> list[tuple[int, str, int, int, int]]:
        """(number, role, term, commit, applied) of all nodes, for messages."""
        return [
            (
                node.number,
                node.raft.role.value,
                node.raft.term,
                node.raft.commit_index,
                node.applied,
            )
            for node in self.nodes
        ]

    # --- what nodes need --------------------------------------------------------------------------

    def send(self, sender: SimNode, to: int, message: RaftMessage) -> None:
        """Carry a message, or not, or twice, and in any order."""
        options, chance = self.options, self.chance
        if self.trace.is_verbose:
            self.trace.effect(str(sender), f"to {to}: {message}")
        if chance.random() < options.codec_chance:
            (part,) = decode_groups(encode_groups([GroupMessages(0, 0, 0, [cast(Any, message)])]))
            (message,) = part.messages
        self.carry(sender, to, lambda node, boot: node.receive(sender.number, boot, message))

    def carry(self, sender: SimNode, to: int, hear: Callable[[SimNode, int], None]) -> None:
        """Have a node hear something of this life of another one, or not, or twice."""
        options, chance = self.options, self.chance
        copies = 1
        if not self.healed:
            if (sender.number, to) in self._cuts or chance.random() < options.drop_chance:
                return
            copies += chance.random() < options.duplicate_chance
        receiver, boot = self.nodes[to], sender.boot
        link = (sender.number, to)
        for _ in range(copies):
            arrival = self.now + self._delay()
            if options.in_order:
                arrival = self._last_arrival[link] = max(arrival, self._last_arrival[link])
            self._at(arrival - self.now, lambda: self._deliver(sender, boot, receiver, hear))

    def after_sync(self, node: SimNode, action: Callable[[], None], later_s: float = 0.0) -> None:
        """Do something when the node's disk has synced, unless it crashes before."""
        boot = node.boot
        delay = 0.0005 if self.healed else self.chance.uniform(0.1, 2) * self.options.sync_s
        delay += later_s
        if node.slow_disk:
            delay += 1.0
        self._at(delay, lambda: self._if_same_boot(node, boot, action))

    def later(self, delay: float, node: SimNode, action: Callable[[], None]) -> None:
        """Do something with a node, which may have crashed by then."""
        self._at(delay, lambda: self._guard(node, action))

    def is_connected(self, sender: SimNode, receiver: SimNode) -> bool:
        """Whether what one sends now reaches the other."""
        return self.healed or (sender.number, receiver.number) not in self._cuts

    def crash_here(self, chance: float) -> bool:
        """Whether power fails at this step of the driving loop."""
        return not self.healed and self.chance.random() < chance

    def chance_of_half_a_sync(self, node: SimNode) -> bool:
        """Whether power fails when the log is on the disk, and not the bytes that it names."""
        return bool(self.options.reach_chance) and self.crash_here(4 * node.crash_chance)

    def power_fails(self, node: SimNode) -> bool:
        """Whether its host goes down with it. Where that may take acknowledged entries, never that
        of so many that nobody can be sure of having all.
        """
        if not self.options.lazy_sync:
            return True
        in_doubt = sum(other.doubtful for other in self.nodes if other is not node)
        return in_doubt + 1 < majority(self.options.voters) and self.chance.random() < 0.5

    def crashed(self, node: SimNode) -> None:
        """A node went down: plan its restart; others notice the broken connection, or not."""
        self._at(self.chance.uniform(0.001, self.options.restart_s), lambda: self._restart(node))
        for other in self.nodes:
            if self.chance.random() < 0.6:
                self._at(0.001, lambda other=other: self._notice(other, node))  # type: ignore[misc]

    # --- events -----------------------------------------------------------------------------------

    def _at(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay, next(self._sequence), action))

    def _repeat(self, every_s: float, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self._repeat(every_s, action)

        self._at(self.chance.uniform(0.2, 1.8) * every_s, again)

    def _guard(self, node: SimNode, action: Callable[[], None]) -> None:
        """Run something on a node that may crash in the middle of it."""
        try:
            action()
        except Crash:
            node.crash()

    def _if_same_boot(self, node: SimNode, boot: int, action: Callable[[], None]) -> None:
        if self.now < node.stands_until:
            self._when_it_goes_on(node, lambda: self._if_same_boot(node, boot, action))
        elif node.up and node.boot == boot:
            self._guard(node, action)

    def _when_it_goes_on(self, node: SimNode, action: Callable[[], None]) -> None:
        self._at(node.stands_until + TIMERS_FIRST_S - self.now, action)

    def _stall(self, node: SimNode) -> None:
        """Stand still for a while, run for a moment, and so on."""
        if self.healed:
            return
        stall_s = self.chance.uniform(0.0, self.options.stalls_s)
        node.stands_until = self.now + stall_s
        self._at(stall_s + self.chance.uniform(0.01, 0.6), lambda: self._stall(node))

    def _delay(self) -> float:
        if self.healed or self.chance.random() >= self.options.slow_chance:
            return self.chance.uniform(0.0002, 0.004)
        return self.chance.uniform(0, self.options.slow_s)

    def _deliver(
        self, sender: SimNode, boot: int, receiver: SimNode, hear: Callable[[SimNode, int], None]
    ) -> None:
        if not receiver.up or (not self.healed and (sender.number, receiver.number) in self._cuts):
            return
        if sender.wiped and boot != sender.boot:
            return  # the node's boot number tells that it is not the one that sent this
        if self.now < receiver.stands_until:
            self._when_it_goes_on(receiver, lambda: self._deliver(sender, boot, receiver, hear))
            return
        self._guard(receiver, lambda: hear(receiver, boot))

    def _start_ticking(self, node: SimNode) -> None:
        """Some drivers tick now and then, others exactly when the core wants it."""
        is_exact = self.options.seed % 4 != 0

        def tick(due: float) -> None:
            if self.now < node.stands_until:
                self._at(node.stands_until - self.now, lambda: tick(due))
                return
            delay = TICK_S
            if node.up:
                if not is_exact or not node.until_deadline():
                    self._guard(node, lambda: node.tick(self.now - due))
                if is_exact and node.up:
                    delay = min(delay, max(0.001, node.until_deadline()))
            later = self.now + delay
            self._at(delay, lambda: tick(later))

        first = self.now + TICK_S
        self._at(TICK_S, lambda: tick(first))

    def _restart(self, node: SimNode) -> None:
        if not (node.up or node.stays_away):
            self._guard(node, node.start)

    def _notice(self, other: SimNode, gone: SimNode) -> None:
        if other.up and other.raft.leader == gone.number:
            self._guard(other, other.leader_lost)

    # --- the clients ------------------------------------------------------------------------------

    def leader(self) -> SimNode | None:
        """Who leads in the newest term, if anybody does."""
        leaders = [node for node in self.nodes if node.up and node.raft.role is Role.LEADER]
        return max(leaders, key=lambda node: node.raft.term, default=None)

    def _propose(self) -> None:
        leaders = [node for node in self.nodes if node.up and node.raft.role is Role.LEADER]
        if not leaders or self.is_idle:
            return
        leader = self.chance.choice(leaders)
        count = self.chance.choice((1, 1, 1, 2, 7))
        if self.options.reach_chance:
            self.shipping.publish(next(self._counter))
            numbers = self.shipping.to_propose(leader)[:count]
        else:
            numbers = [next(self._counter) for _ in range(count)]
        data = [
            b"%d:" % number + bytes(self.chance.randint(0, self.options.entry_bytes))
            for number in numbers
        ]
        if not data:
            return

        def propose() -> None:
            try:
                leader.propose(data)
            except (NotLeader, Busy):
                return

        self._guard(leader, propose)

    def _release(self) -> None:
        node = self.chance.choice(self.nodes)
        if node.up:
            self._guard(node, node.release)

    def _beat(self) -> None:
        for node in self.nodes:
            if node.up and self.now >= node.stands_until:
                self._guard(node, node.beats.tick)

    def _read(self) -> None:
        node = self.chance.choice(self.nodes)
        if node.up and not self.is_idle:
            context = next(self._counter)
            self._guard(node, lambda: node.read(context))

    # --- the operator -----------------------------------------------------------------------------

    def _change(self) -> None:
        """Try to change the membership, allowed or not, at any node that believes it leads."""
        leaders = [node for node in self.nodes if node.up and node.raft.role is Role.LEADER]
        if not leaders or self.healed:
            return
        young = [node for node in leaders if node.is_young]
        leader = self.chance.choice(young or leaders)
        wanted = self._other_members(leader.raft.membership, leader.number)

        def change() -> None:
            try:
                leader.configure(wanted)
            except (NotLeader, Busy, ChangePending, ValueError):
                return

        self._guard(leader, change)

    def _other_members(self, now: Membership, leader: int) -> Configuration:
        voters, learners = list(now.voters), list(now.learners)
        chance = self.chance
        kind = chance.choice(("add", "promote", "promote", "remove", "leave", "demote"))
        if kind == "add" and len(voters) + len(learners) < 7 and len(self.nodes) < 12:
            learners.append(self._newcomer())
        elif kind == "promote" and learners:
            voters.append(learners.pop(chance.randrange(len(learners))))
        elif kind == "remove":
            voters.remove(chance.choice(voters))
        elif kind == "leave" and leader in voters:
            voters.remove(leader)
        elif kind == "demote" and learners:
            learners.remove(chance.choice(learners))
        if chance.random() < 0.1 and voters:
            voters.remove(chance.choice(voters))
        return Configuration(tuple(voters), tuple(learners))

    def _newcomer(self) -> int:
        """A node with an empty disk comes up; its number was never used."""
        node = SimNode(self, len(self.nodes), joins=True)
        self.nodes.append(node)
        self._guard(node, node.start)
        self._start_ticking(node)
        return node.number

    # --- faults -----------------------------------------------------------------------------------

    def _fault(self) -> None:
        if self.healed:
            self._guard_compact()
            return
        faults: tuple[Callable[[], None], ...] = (
            self._crash_one,
            self._crash_one,
            self._crash_all,
            self._cut_one_way,
            self._isolate,
            self._depose,
            self._split,
            self._mend,
            self._mend,
            self._false_alarm,
            self._transfer,
            self._guard_compact,
            self._guard_compact,
            self._slow_disk,
            self._wipe,
        )
        self.faults += 1
        if self.faults not in self.options.skip:
            self._strike(self.faults, faults)

    def _strike(self, number: int, faults: tuple[Callable[[], None], ...]) -> None:
        """One of these, by a chance of its own: leaving it out changes nothing of the others."""
        usual, self.chance = self.chance, random.Random(f"fault {number} {self.options.seed}")
        try:
            if self.options.coups and self.chance.random() < 0.7:
                faults = (self._depose, self._mend)
            fault = self.chance.choice(faults)
            self.trace.event("fault", f"#{number} {fault.__name__.strip('_')}")
            fault()
        finally:
            self.chance = usual

    def _any_node(self) -> SimNode:
        return self.chance.choice(self.nodes)

    def _crash_one(self) -> None:
        leader = self.leader()
        node = leader if leader is not None and self.chance.random() < 0.4 else self._any_node()
        if node.up:
            node.crash()

    def _crash_all(self) -> None:
        for node in self.nodes:
            if node.up and self.chance.random() < 0.9:
                node.crash()

    def _cut_one_way(self) -> None:
        self._cuts.add((self._any_node().number, self._any_node().number))

    def _isolate(self) -> None:
        self._cut_off(self._any_node())

    def _depose(self) -> None:
        """The leader is no longer heard, hears but some of the others, and all of them notice."""
        leader = self.leader()
        if leader is None:
            return
        for other in self.nodes:
            self._cuts.add((leader.number, other.number))
            if self.chance.random() < 0.6:
                self._cuts.add((other.number, leader.number))
            self._notice(other, leader)

    def _cut_off(self, alone: SimNode) -> None:
        for node in self.nodes:
            self._cuts.update(((alone.number, node.number), (node.number, alone.number)))

    def _split(self) -> None:
        side = {node.number for node in self.nodes if self.chance.random() < 0.5}
        everyone = range(len(self.nodes))
        self._cuts.update((a, b) for a in everyone for b in everyone if (a in side) != (b in side))

    def _mend(self) -> None:
        self._cuts.clear()

    def _false_alarm(self) -> None:
        node = self._any_node()
        if node.up:
            self._guard(node, node.leader_lost)

    def _transfer(self) -> None:
        leader = self.leader()
        to = self.chance.randrange(self.options.voters)
        if leader is not None and to != leader.number:
            self._guard(leader, lambda: leader.transfer(to))

    def _guard_compact(self) -> None:
        node = self._any_node()
        if node.up:
            self._guard(node, node.compact)

    def _slow_disk(self) -> None:
        node = self._any_node()
        node.slow_disk = not node.slow_disk

    def _wipe(self) -> None:
        """At most one voter of the group ever loses its disk."""
        node = self.nodes[0]
        if self.options.wipes and not node.wiped and self.now > 1.0:
            if node.up:
                node.crash()
            node.wipe()
            self.chance.choice((self._depose, self._crash_one, self._mend))()
