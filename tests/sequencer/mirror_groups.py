"""Mirrors whose partitions are in data groups, without a cluster: the states of group 0 and of each
data group, and what their leaders tell each other.

Invariant: a group learns of group 0 only what its copy of that says, which may lag.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from samelog.placement.tasks import Action
from samelog.placement.values import EPOCHS_PER_MOVE, NewGroup, PlacedReplica
from samelog.sequencer.data_groups.resets import opening
from samelog.sequencer.merge.drafts import PlannerLimits
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Merge
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Member
from samelog.sequencer.state.tables.mirror_source import MirrorSource
from samelog.sequencer.state.tables.mirrors import PromoteMirrors, TellMirrors
from samelog.sequencer.state.tables.placement import PlaceTopic
from samelog.sequencer.state.tables.sessions import OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.transfers import PassPartition
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.mirrors import ending, mirror_states
from samelog.sequencer.state.units.moves import carry
from tests.sequencer.mirroring import SESSION, SOURCE, source_batch
from tests.sequencer.test_planner import Bytes

PUBLISHER = "publisher"
TERM = 3


class Group:
    """One data group's state, and the planner of its leader."""

    def __init__(self, number: int, cluster: StateMachine) -> None:
        self.number = number
        self.machine = StateMachine()
        self.machine.state.placement.own = [PlacedReplica(0, 1, votes=True)]
        self.index = 0
        self.plan_anew()
        self.known = cluster
        self.learn(cluster)

    def plan_anew(self) -> None:
        """Another leader."""
        self.bytes = Bytes()
        self.planner = Planner(self.machine, PlannerLimits())

    def learn(self, cluster: StateMachine) -> None:
        """The leader's member applies all of group 0."""
        self.known = StateMachine.decode(cluster.encode())

    @property
    def state(self) -> State:
        return self.machine.state

    def follow(self) -> None:
        """What the leader proposes in its group, by what its member knows of group 0."""
        table = self.known.state.placement.partitions
        for number, placed in table.items():
            if placed.group == self.number and number not in self.state.partitions.by_number:
                self.machine.apply(opening(self.known.state, number))
        for command in ending(self.state, self.known.state):
            self.machine.apply(command)

    def told(self) -> TellMirrors:
        """What the leader tells group 0."""
        return TellMirrors(mirror_states(self.number, self.state, self.known.state))

    def open(self, session: str, number: int) -> object:
        """A session writes to a partition."""
        partition = self.state.partitions.by_number[number]
        if session not in self.state.sessions.by_name:
            self.machine.apply(OpenRunCommand(session, session, "i", 0, session, None, None))
        given = session, partition.topic_id, partition.index
        return self.machine.apply(OpenInputCommand(*given))

    def merge(self, session: str, number: int, data: bytes) -> list[Merge]:
        """Merge what a session, which may write there, brings."""
        found: list[Merge] = []
        if self.state.sessions.input_of(session, number) is None:
            self.open(session, number)
        entry = self.state.sessions.input_of(session, number)
        if entry is None:
            return found
        key = entry.number, entry.run, entry.roll
        known = self.bytes.files.get(key, b"")
        self.bytes.files[key] = known.ljust(entry.byte, b"\0") + data
        while merges := self.planner.plan(
            {entry.number: self.bytes.end(entry.number)}, self.bytes, term=TERM, now_ms=1000
        ):
            self.index += 1
            self.planner.proposed(self.index, merges)
            for merge in merges:
                assert not isinstance(self.machine.apply(merge), Rejection)
            self.planner.applied(self.index)
            found += merges
        return found

    def bring(self, number: int, *, epoch: int = 7, producer_id: int = -1) -> list[Merge]:
        """The sidecar brings what follows: whether it is there, the group says."""
        end = self.state.partitions.by_number[number].next_offset
        return self.merge(SESSION, number, source_batch(end, epoch=epoch, producer_id=producer_id))

    def pass_(self, action: Action, number: int, carried: bytes = b"", task: int = 1) -> object:
        """A step of a task that moves a partition."""
        return self.machine.apply(PassPartition(task, action, number, carried))


class Groups:
    """Group 0, and data groups."""

    def __init__(self, count: int = 2) -> None:
        self.cluster = StateMachine()
        self.cluster.state.members.cluster_id = "destination"
        self.cluster.state.members.by_number[0] = Member(
            0, "a", "a:1", "samelog://node/a", voter=True
        )
        self.groups = {number: Group(number, self.cluster) for number in range(1, count + 1)}
        self.tasks = 0

    def create(self, topic_id: str, groups: Sequence[int], source: MirrorSource = SOURCE) -> None:
        """A mirror with these homes of its partitions."""
        table = self.cluster.state.placement
        there = len(table.groups)
        new = [NewGroup(1, (0,), 0) for _ in range(len(self.groups) - there)]
        name, home = f"eu.{topic_id}", list(groups)
        command = PlaceTopic(table.version, topic_id, name, {}, 5, new, home, source=source)
        done = self.cluster.apply(command)
        assert not isinstance(done, Rejection), done
        self.settle()

    def numbers(self, topic_id: str) -> list[int]:
        return self.cluster.state.topics.by_id[topic_id].partition_numbers

    def settle(self) -> None:
        """All tell each other all."""
        for _ in range(3):
            for group in self.groups.values():
                group.learn(self.cluster)
                group.follow()
                self.cluster.apply(group.told())

    def promote(self, *topic_ids: str, at_ms: int = 9) -> object:
        return self.cluster.apply(PromoteMirrors(list(topic_ids), at_ms, "me"))

    def home(self, number: int) -> Group:
        return self.groups[self.cluster.state.placement.partitions[number].group]

    def publish(self, number: int) -> bool:
        """A publisher writes a record, if group 0 and the partition's group allow it."""
        topic_id = self.cluster.state.partitions.by_number[number].topic_id
        index = self.numbers(topic_id).index(number)
        sessions = self.cluster.state.sessions.by_name
        if PUBLISHER not in sessions:
            given = PUBLISHER, PUBLISHER, "i", 0, PUBLISHER, None, None
            self.cluster.apply(OpenRunCommand(*given))
        noted = self.cluster.apply(OpenInputCommand(PUBLISHER, topic_id, index))
        if isinstance(noted, Rejection):
            return False
        return bool(self.home(number).merge(PUBLISHER, number, source_batch(0, 1)))

    def begin_move(self, number: int, target: int) -> bytes:
        """Seal a partition in its group: what is carried to another one."""
        self.tasks += 1
        source, there, task = self.home(number), self.groups[target], self.tasks
        assert not isinstance(source.pass_(Action.HOLD_PARTITION, number, task=task), Rejection)
        copied = carry(source.state, number, is_sealed=False)
        copying = there.pass_(Action.COPY_PARTITION, number, copied, task)
        assert not isinstance(copying, Rejection), copying
        sealed = source.pass_(Action.SEAL_PARTITION, number, task=task)
        assert not isinstance(sealed, Rejection), sealed
        return carry(source.state, number, is_sealed=True)

    def end_move(self, number: int, target: int, carried: bytes) -> None:
        """Open it in the other group."""
        source, there, task = self.home(number), self.groups[target], self.tasks
        opened = there.pass_(Action.OPEN_PARTITION, number, carried, task)
        assert not isinstance(opened, Rejection), opened
        there.learn(self.cluster)
        self.cluster.apply(there.told())
        table = self.cluster.state.placement
        placed = table.partitions[number]
        base = placed.epoch_base + EPOCHS_PER_MOVE
        table.partitions[number] = replace(placed, group=target, epoch_base=base)
        assert not isinstance(source.pass_(Action.DROP_PARTITION, number, task=task), Rejection)
