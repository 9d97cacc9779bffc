"""Programs in worlds of promotions: idempotent producers and publishers' sessions, which send again
what they got no answer for, to whichever leader they find.

What decides is the product's: the verdicts of dedup, and the state machine, which applies merge
instructions. A program is what a client is: it goes by the cluster that it met last.

Invariant: in each history a producer's batches rise, and only a promotion leaves a gap in them; a
session's records are there from the first on, without a hole, each once.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from samelog.consensus import Busy, NotLeader
from samelog.replicator.cluster_pin import ClusterPin
from samelog.sequencer.merge.dedup import BatchFacts, DedupView
from samelog.sequencer.state.commands import encode_commands
from samelog.sequencer.state.instructions import Merge, Range, Sequence5, Verdict
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import OpenInputCommand, OpenRunCommand
from samelog.wire.errors import ProtocolFault
from tests.promotions.harm import Harm
from tests.promotions.member import MERGE, RECORD, Member, name_of
from tests.promotions.memory_files import MemoryFiles

if TYPE_CHECKING:
    from tests.promotions.world import World

TOPIC = "t" * 32
PRODUCERS, SESSIONS = 2, 2
FIRST_PRODUCER = 100
FILE = 4
"""A publisher lets go of whole files of so many records."""


def open_inputs(base: StateMachine) -> list[int]:
    """One for each program: a session of its own with a run in the topic."""
    (number,) = base.state.topics.by_id[TOPIC].partition_numbers
    found = []
    for place in range(PRODUCERS + SESSIONS):
        session = f"program-{place}"
        base.apply(OpenRunCommand(session, session, "i", 0, session, None, None))
        base.apply(OpenInputCommand(session, TOPIC, 0))
        entry = base.state.sessions.input_of(session, number)
        if entry is None:
            raise Harm(f"{session} has no input")
        found.append(entry.number)
    return found


@dataclass(slots=True)
class Sent:
    """What waits for an answer: of which leader, in which life, as what cluster."""

    record: bytes
    leader: int
    life: int
    cluster_id: str


class Program(ABC):
    """Sends one record after the other."""

    def __init__(self, number: int, chance: random.Random) -> None:
        """`number`: of its input."""
        self.number = number
        self.chance = chance
        self.acked = self.refused = 0
        self._pin = ClusterPin(cast(Any, MemoryFiles()), "program")
        self._sent: Sent | None = None

    def step(self, world: World) -> None:
        """Hear what became of what was sent, or try a node."""
        self._hear(world)
        member = self.chance.choice(world.members)
        if self._sent is not None or not member.leads or self.chance.random() < 0.5:
            return
        try:
            self._pin.meet(member.cluster_id)
        except ProtocolFault:
            return
        if member.raft.applied_index != member.raft.last_index:
            return  # the planner has more under way, and this world keeps no tail of it
        merge = self.plan(member)
        if merge is not None:
            self._send(world, member, merge)

    def _send(self, world: World, member: Member, merge: Merge) -> None:
        try:
            member.raft.propose([MERGE + encode_commands([merge])], world.now)
        except (NotLeader, Busy):
            return
        life = world.lives[member.number]
        self._sent = Sent(name_of(merge), member.number, life, member.cluster_id)
        world.drain(member)
        self._hear(world)  # one that votes alone has it at once

    def _hear(self, world: World) -> None:
        sent = self._sent
        if sent is None:
            return
        leader = world.members[sent.leader]
        if not leader.leads or world.lives[sent.leader] != sent.life:
            self._sent = None  # there is no answer
        elif sent.record in leader.records[-200:]:
            self._sent, self.acked = None, self.acked + 1
            if leader.told is not None:
                raise Harm(f"n{sent.leader} acknowledges, and was told that it is of before")
            self.acknowledged(sent)
        elif leader.raft.applied_index == leader.raft.last_index:
            self._sent, self.refused = None, self.refused + 1

    @abstractmethod
    def plan(self, member: Member) -> Merge | None:
        """What comes next there, if anything may."""

    @abstractmethod
    def acknowledged(self, sent: Sent) -> None:
        """It is there."""

    @abstractmethod
    def check(self, history: Sequence[bytes], promotions: int) -> None:
        """Raises Harm if a history has other records of it than it may have."""


class IdempotentProducer(Program):
    """Numbers its batches, each of one record, and sends one again until it is there."""

    def __init__(self, number: int, chance: random.Random, producer_id: int) -> None:
        super().__init__(number, chance)
        self._producer_id = producer_id
        self._next = 0
        self._acked_in = ""
        """The cluster that had the newest one."""

    def plan(self, member: Member) -> Merge | None:
        sequence = self._next
        if self._acked_in == member.cluster_id and self.chance.random() < 0.2:
            sequence += 1  # the one before is on its way over another connection
        state = member.machine.state
        partition = state.sessions.inputs[self.number].partition
        facts = BatchFacts(1, self._producer_id, 0, sequence)
        verdict = DedupView(member.machine).judge(facts, partition).verdict
        if verdict is Verdict.DUPLICATE and sequence == self._next:
            self._go_on(sequence, member.cluster_id)
        if verdict is not Verdict.TAKE:
            return None
        offset = state.partitions.by_number[partition].next_offset
        known = Sequence5(self._producer_id, 0, sequence, sequence, offset)
        return merge_of(member, self.number, state.sessions.inputs[self.number].byte, [known])

    def _go_on(self, sequence: int, cluster_id: str) -> None:
        self._next, self._acked_in = max(self._next, sequence + 1), cluster_id

    def acknowledged(self, sent: Sent) -> None:
        self._go_on(int(sent.record.split()[-1]), sent.cluster_id)

    def check(self, history: Sequence[bytes], promotions: int) -> None:
        name = RECORD + b"producer %d " % self._producer_id
        found = [int(each.split()[-1]) for each in history if each.startswith(name)]
        pairs = list(pairwise(found))
        if any(second <= first for first, second in pairs):
            raise Harm(f"producer {self._producer_id} is there twice, or in another order: {found}")
        gaps = sum(second > first + 1 for first, second in pairs)
        if gaps + bool(found and found[0]) > promotions:
            raise Harm(f"producer {self._producer_id} lacks more than {promotions} times: {found}")


class PublisherSession(Program):
    """Has its records in files, and lets go of those that a majority has merged."""

    def __init__(self, number: int, chance: random.Random) -> None:
        super().__init__(number, chance)
        self._released = 0

    def plan(self, member: Member) -> Merge | None:
        place = member.machine.state.sessions.inputs[self.number].byte
        return merge_of(member, self.number, max(place, self._released))

    def acknowledged(self, sent: Sent) -> None:
        behind = int(sent.record.split()[-1]) + 1
        self._released = max(self._released, behind // FILE * FILE)

    def check(self, history: Sequence[bytes], promotions: int) -> None:
        name = RECORD + b"session %d " % self.number
        found = [int(each.split()[-1]) for each in history if each.startswith(name)]
        if found != list(range(len(found))):
            raise Harm(f"session {self.number} has a hole, or records twice: {found}")


def merge_of(member: Member, number: int, start: int, sequences: Sequence[Sequence5] = ()) -> Merge:
    """The instruction for one record of an input."""
    state = member.machine.state
    entry = state.sessions.inputs[number]
    base_offset = state.partitions.by_number[entry.partition].next_offset
    part = Range(number, entry.run, entry.roll, start, start + 1, 1, 1, 0)
    return Merge(entry.partition, base_offset, member.raft.term, 1, False, [part], list(sequences))


class Programs:
    """All of a world's."""

    def __init__(self, inputs: Sequence[int], chance: random.Random) -> None:
        self.producers = [
            IdempotentProducer(number, chance, FIRST_PRODUCER + place)
            for place, number in enumerate(inputs[:PRODUCERS])
        ]
        self.sessions = [PublisherSession(number, chance) for number in inputs[PRODUCERS:]]

    @property
    def everybody(self) -> list[Program]:
        """All of them."""
        return [*self.producers, *self.sessions]

    def step(self, world: World) -> None:
        """Each does something, perhaps."""
        for each in self.everybody:
            each.step(world)

    def check(self, history: Sequence[bytes], promotions: int) -> None:
        """Raises Harm."""
        for each in self.everybody:
            each.check(history, promotions)
