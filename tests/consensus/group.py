"""A group of cores in one test: no chance, no delay; the test decides what happens and when.

Messages wait until `settle` delivers them. Saves end at once unless the node's disk is held.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence

from samelog.consensus import (
    Configuration,
    Effects,
    Entry,
    HardState,
    Raft,
    RaftConfig,
    Role,
    Snapshot,
    decode_configuration,
    is_configuration,
)
from samelog.consensus.messages import Append, RaftMessage, SnapshotChunk

CONFIG = RaftConfig()


class Node:
    """One core, and what a driver keeps for it."""

    def __init__(self, raft: Raft) -> None:
        self.raft = raft
        self.disk_held = False
        self.held: deque[Effects] = deque()
        self.applied: list[Entry] = []
        self.reads: list[tuple[int, int | None]] = []
        self.snapshot: Snapshot | None = None
        self.entries: list[Entry] = []
        self.hard_state = HardState(0, None, 0)
        self.up = True

    def save(self, effects: Effects) -> None:
        """Put a batch on the disk."""
        if effects.snapshot is not None:
            self.snapshot = effects.snapshot
            self.entries = []
        if effects.entries:
            first = effects.entries[0].index
            self.entries = [entry for entry in self.entries if entry.index < first]
            self.entries += effects.entries
        if effects.hard_state is not None:
            self.hard_state = effects.hard_state


class Group:
    """Some nodes, the messages between them, and one clock for all."""

    def __init__(
        self,
        voters: int,
        *,
        learners: int = 0,
        config: RaftConfig = CONFIG,
        timid: Iterable[int] = (),
    ) -> None:
        self.voters = tuple(range(voters))
        self.learners = tuple(range(voters, voters + learners))
        self.config = config
        self.now = 100.0
        self.cuts: set[tuple[int, int]] = set()
        self.queue: deque[tuple[int, int, RaftMessage]] = deque()
        self.trace: list[str] = []
        self.dropped: list[tuple[int, int, RaftMessage]] = []
        self.timid = set(timid)
        self.doubtful: set[int] = set()
        self.nodes: list[Node] = []
        self.joining: set[int] = set()
        for number in (*self.voters, *self.learners):
            self.nodes.append(Node(self._raft(number, None, [], HardState(0, None, 0))))

    def __getitem__(self, number: int) -> Raft:
        return self.nodes[number].raft

    @property
    def leader(self) -> int | None:
        """The leader of the highest term."""
        leading = [
            number
            for number, node in enumerate(self.nodes)
            if node.raft.role is Role.LEADER and node.up
        ]
        return max(leading, key=lambda number: self[number].term, default=None)

    # --- what a test does -------------------------------------------------------------------------

    def timeout(self, number: int) -> None:
        """Let this node's next deadline pass; no other node's clock is looked at."""
        self.now = max(self.now, self[number].next_deadline())
        self[number].tick(self.now)
        self.settle()

    def elect(self, number: int) -> None:
        """Let everybody forget the leader, and this node campaign until it leads."""
        for node in self.nodes:
            node.raft.leader_lost(self.now)
        self.timeout(number)
        if self.leader != number:
            raise AssertionError(f"node {number} was not elected")

    def wait(self, seconds: float) -> None:
        """Time passes for everybody, in steps of 20 ms."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.02
            for number, node in enumerate(self.nodes):
                if node.up:
                    self[number].tick(self.now)
            self.settle()

    def propose(self, number: int, *data: bytes) -> int:
        """Propose at this node and let everything settle."""
        first = self[number].propose(data, self.now)
        self.settle()
        return first

    def join(self) -> int:
        """One more node, with an empty disk, which knows nobody: its number."""
        number = len(self.nodes)
        self.joining.add(number)
        self.nodes.append(Node(self._raft(number, None, [], HardState(0, None, 0))))
        return number

    def configure(self, number: int, voters: Iterable[int], learners: Iterable[int] = ()) -> int:
        """Propose a configuration at this node and let everything settle: the entry's index."""
        wanted = Configuration(tuple(voters), tuple(learners))
        index = self[number].propose_configuration(wanted, self.now)
        self.settle()
        return index

    def isolate(self, number: int) -> None:
        """Cut a node off, both ways."""
        for other in range(len(self.nodes)):
            self.cuts |= {(number, other), (other, number)}

    def mend(self) -> None:
        """No cut is left."""
        self.cuts.clear()

    def crash(self, number: int) -> None:
        """Power fails: only what is saved stays."""
        node = self.nodes[number]
        node.up = False
        node.held.clear()

    def wipe(self, number: int) -> None:
        """A crashed node loses its disk; it may not vote when it comes back."""
        node = self.nodes[number]
        node.snapshot, node.entries, node.hard_state = None, [], HardState(0, None, 0)
        self.timid.add(number)

    def lose(self, number: int, index: int) -> None:
        """A crashed node loses its entries from `index` on, and knows that it may have."""
        node = self.nodes[number]
        node.entries = [entry for entry in node.entries if entry.index < index]
        known = node.hard_state
        node.hard_state = HardState(known.term, known.vote, min(known.commit, index - 1))
        self.doubtful.add(number)

    def restart(self, number: int) -> None:
        """Boot from the disk."""
        node = self.nodes[number]
        node.up = True
        node.disk_held = False
        node.applied, node.reads = [], []
        node.raft = self._raft(number, node.snapshot, node.entries, node.hard_state)
        self.settle()

    def hold_disk(self, number: int) -> None:
        """Saves of this node don't end any more."""
        self.nodes[number].disk_held = True

    def release_disk(self, number: int) -> None:
        """What is held becomes durable."""
        node = self.nodes[number]
        node.disk_held = False
        while node.held:
            self._finish_save(number, node.held.popleft())
        self.settle()

    def compact(self, number: int, index: int, data: bytes = b"state") -> None:
        """Cut the log of a node at `index`, with a snapshot of all it applied."""
        raft, node = self[number], self.nodes[number]
        last = raft.applied_index
        members = raft.membership_at(last)
        snapshot = Snapshot(last, raft.term_at(last), members.voters, members.learners, data)
        raft.compact(index, snapshot)
        node.snapshot = snapshot
        node.entries = [entry for entry in node.entries if entry.index >= index]

    def settle(self) -> None:
        """Carry out effects and deliver messages until nothing is left to do."""
        while True:
            self.drain()
            if not self.queue:
                return
            self.deliver()

    def deliver(self) -> None:
        """Deliver what is under way, and nothing of what follows from it."""
        for _ in range(len(self.queue)):
            self._deliver(*self.queue.popleft())

    def drain(self) -> None:
        """Carry out effects of all nodes without delivering anything."""
        for number, node in enumerate(self.nodes):
            while node.up and (effects := node.raft.take_effects()):
                self._carry_out(number, effects)

    def log(self, number: int) -> list[tuple[int, int]]:
        """(index, term) of all entries a node holds."""
        raft = self[number]
        return [
            (index, raft.term_at(index)) for index in range(raft.first_index, raft.last_index + 1)
        ]

    def data(self, number: int) -> list[bytes]:
        """What a node's state machine has taken, without no-ops."""
        return [entry.data for entry in self.nodes[number].applied if entry.data]

    # --- inside -----------------------------------------------------------------------------------

    def _raft(
        self,
        number: int,
        snapshot: Snapshot | None,
        entries: Sequence[Entry],
        hard_state: HardState,
    ) -> Raft:
        return Raft(
            number,
            () if number in self.joining else self.voters,
            learners=() if number in self.joining else self.learners,
            config=self.config,
            random=random.Random(number),
            now=self.now,
            snapshot=snapshot,
            entries=entries,
            hard_state=hard_state,
            may_vote=number not in self.timid,
            doubtful=number in self.doubtful,
        )

    def _deliver(self, sender: int, to: int, message: RaftMessage) -> None:
        if (sender, to) in self.cuts or not self.nodes[to].up:
            self.dropped.append((sender, to, message))
            return
        self.nodes[to].raft.step(sender, message, self.now)

    def _carry_out(self, number: int, effects: Effects) -> None:
        node = self.nodes[number]
        self.trace += describe_effects(number, node.raft, effects)
        self._send(number, effects.send)
        if effects.snapshot is not None:
            node.applied = []
        node.applied += effects.apply
        node.reads += effects.reads
        if node.disk_held:
            node.held.append(effects)
        else:
            self._finish_save(number, effects)

    def _finish_save(self, number: int, effects: Effects) -> None:
        node = self.nodes[number]
        node.save(effects)
        node.raft.saved(effects.token)
        self._send(number, effects.send_after_save)

    def _send(self, number: int, messages: Sequence[tuple[int, RaftMessage]]) -> None:
        self.queue.extend((number, to, message) for to, message in messages)


# --- traces ---------------------------------------------------------------------------------------


def describe(message: RaftMessage) -> str:
    """A message on one line."""
    fields = []
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if isinstance(message, Append) and name == "entries":
            value = "[" + " ".join(describe_entry(entry) for entry in value) + "]"
        elif isinstance(message, SnapshotChunk) and name == "data":
            value = f"{len(value)} bytes"
        elif isinstance(value, tuple):
            value = ",".join(map(str, value)) or "none"
        fields.append(f"{name}={value}")
    return f"{type(message).__name__} {' '.join(fields)}"


def describe_entry(entry: Entry) -> str:
    """index/term:data, or index/term for a no-op."""
    text = f"{entry.index}/{entry.term}"
    if is_configuration(entry.data):
        members = decode_configuration(entry.data)
        voters, learners = (",".join(map(str, who)) for who in (members.voters, members.learners))
        return f"{text}:({voters}{' learners ' + learners if learners else ''})"
    return f"{text}:{entry.data.decode()}" if entry.data else text


def describe_effects(number: int, raft: Raft, effects: Effects) -> list[str]:
    """A batch, one line for each thing to do."""
    lines = []
    if effects.role_changed:
        lines.append(f"{raft.role.value} in term {raft.term}, leader {raft.leader}")
    lines += [f"sends {to} {describe(message)}" for to, message in effects.send]
    if effects.snapshot is not None:
        lines.append(f"saves snapshot {effects.snapshot.last_index}/{effects.snapshot.last_term}")
    if effects.entries:
        lines.append("saves " + " ".join(map(describe_entry, effects.entries)))
    if effects.hard_state is not None:
        state = effects.hard_state
        lines.append(f"saves term={state.term} vote={state.vote} commit={state.commit}")
    lines += [f"then sends {to} {describe(message)}" for to, message in effects.send_after_save]
    if effects.apply:
        lines.append("applies " + " ".join(map(describe_entry, effects.apply)))
    lines += [f"answers read {context} with {index}" for context, index in effects.reads]
    return [f"{number} {line}" for line in lines]


def led(voters: int = 3, **options: object) -> Group:
    """A group led by node 0."""
    group = Group(voters, **options)  # type: ignore[arg-type]
    group.elect(0)
    return group
