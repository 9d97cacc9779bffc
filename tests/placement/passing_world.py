"""A partition that goes from group to group, and back, while sessions write it: with the real
states of both groups, the real steps of tasks, and orders that are lost, late and repeated.

What a session was told to be merged has to be in the log once, in order, whatever group has it.

Invariant: everything in a world follows from its seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from samelog.consensus import NotLeader
from samelog.placement.changes import AnyChange, PlaceGroups, StartTask, TurnTask, apply_change
from samelog.placement.members import MemberStates, PlacementLimits
from samelog.placement.steps import next_step
from samelog.placement.table import PlacedMember, PlacementTable
from samelog.placement.tasks import Action, PlacementRefused, PlacementTask, TaskKind, TaskState
from samelog.placement.values import NewGroup, PlacedPartition, PlacedReplica, Placement
from samelog.sequencer.data_groups.passing import PartitionPasses
from samelog.sequencer.data_groups.placing import moved_by
from samelog.sequencer.levels import LOWEST
from samelog.sequencer.raft.views import NodeView
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand, decode_commands, encode_commands
from samelog.sequencer.state.instructions import Merge, Range, Sequence5
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.placement import OpenPartition
from samelog.sequencer.state.tables.sessions import CloseRun, Input, OpenPlacedInput, Run
from samelog.sequencer.state.tables.transfers import PassPartition
from samelog.sequencer.state.types import State
from samelog.wire.peer_messages import PassAsked, PassReport, PassTold

MOVING, STAYING = 1, 2
TOPIC = "a" * 32
CHIEF = 9
NO_SETTINGS: Mapping[str, str] = {}
STEPS = 400
STEPS_TO_END = 4_000


class Harm(Exception):
    """A promise that was not kept."""


class NoHistory:
    """Nothing was archived."""

    def whole(self, number: int) -> bytes:
        return b""


class Group:
    """One group: its state, what is proposed, and its log of the partition that moves."""

    def __init__(
        self, number: int, partition: int, settings: Mapping[str, str] = NO_SETTINGS
    ) -> None:
        self.number = number
        self.machine = StateMachine()
        self.machine.state.members.level = LOWEST
        self.machine.state.placement.own = [PlacedReplica(number, number)]
        self.machine.apply(
            OpenPartition(partition, TOPIC, "t", dict(settings), 1, [MOVING, STAYING])
        )
        self.entries: list[bytes] = []
        self.copied = 0
        """How much of the partition that moves is here, and durable."""
        self.indexed = 0
        """How far the index of its keys reaches."""
        self.is_led = True

    @property
    def state(self) -> State:
        return self.machine.state

    def propose(self, commands: list[AnyCommand]) -> int:
        if not self.is_led:
            raise NotLeader(None)
        self.entries.append(encode_commands(commands))
        return 0

    def as_replica(self) -> Any:
        """What a replica of it looks like to PartitionPasses."""
        raft = SimpleNamespace(voters=(self.number,))
        merging = SimpleNamespace(merged_durable=lambda numbers: {MOVING: self.copied})
        return SimpleNamespace(
            raft=SimpleNamespace(
                group=SimpleNamespace(is_leader=self.is_led, raft=raft, propose=self.propose),
                coordinator=SimpleNamespace(views={self.number: NodeView()}),
            ),
            logs=SimpleNamespace(machine=self.machine, merging=merging),
            care=SimpleNamespace(
                archive=SimpleNamespace(history=NoHistory()), keys=SimpleNamespace(coverage=self)
            ),
        )

    def has_covered(self, node: int, partition: int, offset: int) -> bool:
        """See KeyCoverage."""
        return self.indexed >= offset


class Writer:
    """A session: what it has of each run for the partition that moves, a record a byte."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.run, self.length = 1, 0
        self.is_ending = False
        self.told: list[tuple[str, int, int]] = []
        """Records that it was told to be merged."""


class PassingWorld:
    """Two groups, one of which has the partition, group 0, and sessions."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        settings = {"dedup.key": "first"} if seed % 3 == 0 else NO_SETTINGS
        self.groups = {n: Group(n, each, settings) for n, each in ((1, MOVING), (2, STAYING))}
        self.has_keys = bool(settings)
        self.groups[1].copied = 0
        placement = Placement()
        apply_change(placement, PlaceGroups(1, tuple(NewGroup(1, (n,), n) for n in (1, 2))))
        for number, group in ((MOVING, 1), (STAYING, 2)):
            placement.partitions[number] = PlacedPartition(number, TOPIC, number - 1, group)
        self.cluster = State()
        self.cluster.placement = placement
        members = [PlacedMember(n, f"n{n}") for n in (1, 2, CHIEF)]
        self.table = PlacementTable(placement, members)
        self.log: list[tuple[str, int, int]] = []
        """Every record that was merged, as (session, run, byte), by offset."""
        self.newest_epoch = 0
        self.may_end_runs = True
        self.writers = [Writer("p1"), Writer("p2")]
        self.said: dict[int, PassReport] = {}
        self.late: list[Callable[[], None]] = []
        self.ends: dict[TaskState, int] = {}
        self.passes = {n: self._passes(n) for n in (1, 2)}

    def _passes(self, own: int) -> PartitionPasses:
        here = SimpleNamespace(
            replica_of=lambda n: self.groups[n].as_replica() if n == own else None,
            leader=lambda n: (1, n),
        )
        return PartitionPasses(
            own,
            here,
            cluster=lambda: self.cluster,
            is_there=lambda n: True,
            send=self._send(own),
            on_report=lambda report: None,
        )

    def _send(self, own: int) -> Callable[[int, Any], bool]:
        def send(to: int, message: Any) -> bool:
            if isinstance(message, PassReport):
                self.late.append(lambda: self._hear(message))
            elif isinstance(message, PassAsked):
                self.late.append(lambda: self.passes[to].answer(own, message))
            elif isinstance(message, PassTold):
                self.late.append(lambda: self.passes[to].hear(message))
            return True

        return send

    def _hear(self, report: PassReport) -> None:
        if report.task in self.cluster.placement.tasks:
            self.said[report.group] = report

    # --- group 0 ----------------------------------------------------------------------------------

    def apply(self, change: AnyChange) -> None:
        try:
            apply_change(self.cluster.placement, change)
        except PlacementRefused:
            return
        if isinstance(change, TurnTask) and change.state in (TaskState.DONE, TaskState.CANCELLED):
            self.ends[change.state] = self.ends.get(change.state, 0) + 1
            self.said.clear()
        self.table.follow(self.cluster.placement)

    def look(self) -> None:
        states = MemberStates(self.table, PlacementLimits(), 0)
        for task in list(self.cluster.placement.tasks.values()):
            step = next_step(self.table, states, task, moved_by(task, self.said))
            if step.change is not None:
                self.apply(step.change)
            if step.order is not None:
                passes = self.passes[step.order.group]
                self.late.append(partial(passes.carry_out, CHIEF, step.order))

    def begin(self) -> None:
        """The partition is to be in the other group."""
        placement = self.cluster.placement
        source = placement.group_of(MOVING)
        task = PlacementTask(
            placement.next_task,
            TaskKind.MOVE_PARTITION,
            source,
            partition=MOVING,
            target=3 - source,
        )
        self.apply(StartTask(task))

    def cancel(self) -> None:
        for number in list(self.cluster.placement.tasks):
            self.apply(TurnTask(number, TaskState.CANCELLING))

    def another_leader(self) -> None:
        """Of group 0: it has heard nothing yet."""
        self.said.clear()

    # --- groups -----------------------------------------------------------------------------------

    def commit_some(self, group: Group) -> None:
        for _ in range(self.chance.randint(0, len(group.entries))):
            self.commit(group)

    def commit(self, group: Group) -> None:
        """The next entry is applied, with what that means for the log."""
        (command,) = decode_commands(group.entries.pop(0))
        known = group.state.partitions.by_number.get(MOVING)
        outcome = group.machine.apply(command)
        if isinstance(command, Merge) and not isinstance(outcome, Rejection):
            self._merged(group, command)
        opens = isinstance(command, PassPartition) and command.action is Action.OPEN_PARTITION
        if opens and not isinstance(outcome, Rejection):
            self._compare_with_source(group)
        if known is not None and MOVING not in group.state.partitions.by_number:
            group.copied = group.indexed = 0
            self._check_keys(group, known.next_offset)
            if not any(self.has_all(each) for each in self.groups.values()):
                raise Harm("records are gone with the source")

    def _compare_with_source(self, group: Group) -> None:
        """What dedup knows came along."""
        source, target = self.groups[3 - group.number].state, group.state
        for producer, batches in source.producers.batches.items():
            if MOVING in batches and target.producers.batches[producer][MOVING] != batches[MOVING]:
                raise Harm(f"what was merged of {producer} is forgotten")
        if source.keys.export(MOVING) != target.keys.export(MOVING):
            raise Harm("what is known of keys is forgotten")
        for dedup_id, known in source.watermarks.by_dedup_id.items():
            if MOVING in known and target.watermarks.by_dedup_id[dedup_id][MOVING] != known[MOVING]:
                raise Harm(f"what was merged of {dedup_id} is forgotten")

    def _check_keys(self, source: Group, end: int) -> None:
        """A group has dropped the partition, and its index of all keys below `end`."""
        has_left = MOVING in source.state.transfers.left
        if self.has_keys and has_left and self.groups[3 - source.number].indexed < end:
            raise Harm("keys are gone with the source")

    def has_all(self, group: Group) -> bool:
        return MOVING in group.state.partitions.by_number and group.copied >= len(self.log)

    def _merged(self, group: Group, command: Merge) -> None:
        if command.partition != MOVING:
            return
        if command.base_offset != len(self.log):
            raise Harm(f"offset {command.base_offset} of {len(self.log)} again")
        if command.epoch < self.newest_epoch:
            raise Harm("the leader epoch falls")
        self.newest_epoch = command.epoch
        for part in command.ranges:
            session = group.state.sessions.inputs[part.input].session
            self.log += [(session, part.run, byte) for byte in range(part.start, part.stop)]
        if group.copied == command.base_offset:
            group.copied = len(self.log)

    def copy(self, group: Group) -> None:
        """What its state knows of comes from the other group, while that has it."""
        known, other = group.state.partitions.by_number.get(MOVING), self.groups[3 - group.number]
        if known is not None and MOVING in other.state.partitions.by_number:
            reach = min(known.next_offset, other.copied)
            group.copied = max(group.copied, min(reach, group.copied + self.chance.randint(0, 9)))

    def index(self, group: Group) -> None:
        """The group indexes more of what it has copied."""
        group.indexed += self.chance.randint(0, group.copied - group.indexed)

    def lose_leader(self, group: Group) -> None:
        """What is not committed yet is gone."""
        group.entries.clear()

    # --- writers ----------------------------------------------------------------------------------

    def write(self, writer: Writer) -> None:
        """Ask the group that the table names to merge some more; take note of what it says."""
        group = self.groups[self.cluster.placement.group_of(MOVING)]
        entry = self._input(group, writer, MOVING)
        if entry is None or entry.run != writer.run:
            return
        self._note(writer, entry)
        if entry.byte >= writer.length:
            return
        stop = min(writer.length, entry.byte + self.chance.randint(1, 3))
        part = Range(entry.number, writer.run, 0, entry.byte, stop, stop - entry.byte, 1, 0)
        known = group.state.partitions.by_number[MOVING]
        seen = Sequence5(int(writer.name[1:]), 0, entry.byte, stop, known.next_offset)
        where = known.next_offset, 1 + group.state.epochs.by_partition.get(MOVING, 0), 1, False
        group.propose([Merge(MOVING, *where, [part], [seen], [(writer.name, stop)])])

    def _note(self, writer: Writer, entry: Input) -> None:
        told = [(writer.name, writer.run, byte) for byte in range(entry.byte)]
        if len(told) < len([each for each in writer.told if each[1] == writer.run]):
            raise Harm(f"{writer.name} is told that less is merged")
        writer.told = [each for each in writer.told if each[1] != writer.run] + told

    def _input(self, group: Group, writer: Writer, partition: int) -> Input | None:
        number = group.machine.state.sessions.input_of(writer.name, partition)
        if number is None or self._run(group, writer) is None:
            name = writer.name
            asked = OpenPlacedInput(
                name, name, "i", writer.run, writer.run, f"{name}-{writer.run}", None, None, None,
                TOPIC, partition - 1,
            )  # fmt: skip
            group.propose([asked])
            return None
        return number

    def _run(self, group: Group, writer: Writer) -> Run | None:
        run = group.machine.state.sessions.open_run_of(writer.name)
        return run if run is not None and run.number == writer.run else None

    def next_run(self, writer: Writer) -> None:
        """Once all of a run is merged it is closed in every group, and another one begins."""
        here = self.groups[self.cluster.placement.group_of(MOVING)]
        entry = here.machine.state.sessions.input_of(writer.name, MOVING)
        if not self.may_end_runs or entry is None:
            return
        if (entry.run, entry.byte) != (writer.run, writer.length):
            return
        self._note(writer, entry)
        writer.is_ending, is_open = True, False
        for group in self.groups.values():
            run = group.machine.state.sessions.open_run_of(writer.name)
            if run is not None and run.number == writer.run:
                is_open = True
                group.propose([CloseRun(writer.name, run.run_id, 1)])
        if not is_open:
            writer.run, writer.length = writer.run + 1, self.chance.randint(1, 20)
            writer.is_ending = False

    def close_overtaken(self, group: Group, writer: Writer) -> None:
        """A run that group 0 has closed is closed by the group's leader."""
        run = group.machine.state.sessions.open_run_of(writer.name)
        if run is not None and run.number < writer.run:
            group.propose([CloseRun(writer.name, run.run_id, 1)])

    # --- running ----------------------------------------------------------------------------------

    def step(self, loss: float) -> None:
        group = self.chance.choice([*self.groups.values()])
        group.is_led = self.chance.random() >= loss
        writer = self.chance.choice(self.writers)
        what: list[Callable[[], object]] = [
            self.look,
            lambda: self.commit_some(group),
            lambda: self.commit_some(group),
            lambda: self.copy(group),
            lambda: self.index(group),
            lambda: self.write(writer),
            lambda: self.next_run(writer),
            lambda: self._input(self.groups[2], writer, STAYING),
            lambda: self.close_overtaken(group, writer),
        ]
        try:
            self.chance.choice(what)()
        except NotLeader:
            return
        if self.late and self.chance.random() < 0.7:
            place = self.chance.randrange(len(self.late))
            late = self.late[place]
            if self.chance.random() < 0.8:
                self.late.pop(place)
            if self.chance.random() >= loss:
                late()
        del self.late[:-40]

    def happen(self) -> None:
        """Something that is not of the plain way."""
        group = self.chance.choice([*self.groups.values()])
        what: list[Callable[[], None]] = [
            self.cancel,
            self.another_leader,
            lambda: self.lose_leader(group),
            self.begin,
            self.begin,
        ]
        self.chance.choice(what)()

    def run(self) -> None:
        for _ in range(STEPS):
            self.step(0.2)
            if self.chance.random() < 0.05:
                self.happen()
            for writer in self.writers:
                writer.length += not writer.is_ending and self.chance.random() < 0.2
        for left in reversed(range(STEPS_TO_END)):
            self.may_end_runs = left > STEPS_TO_END / 2
            self.step(0.0)
            if not self.cluster.placement.tasks and all(map(self.is_done, self.writers)):
                break
        self.check()

    def is_done(self, writer: Writer) -> bool:
        group = self.groups[self.cluster.placement.group_of(MOVING)]
        entry = group.machine.state.sessions.input_of(writer.name, MOVING)
        return entry is not None and (entry.run, entry.byte) == (writer.run, writer.length)

    # --- promises ---------------------------------------------------------------------------------

    def check(self) -> None:
        placement = self.cluster.placement
        if placement.tasks:
            raise Harm(f"a task has no end: {placement.tasks}, {self.said}")
        home, other = placement.group_of(MOVING), 3 - placement.group_of(MOVING)
        if MOVING in self.groups[other].state.partitions.by_number:
            raise Harm("the partition is in both groups")
        state = self.groups[home].state
        if state.transfers.is_on_its_way(MOVING) or not self.has_all(self.groups[home]):
            raise Harm("the partition is not open where it is")
        if state.epochs.by_partition.get(MOVING, 0) != placement.partitions[MOVING].epoch_base:
            raise Harm("the group and the table differ about leader epochs")
        for writer in self.writers:
            self._check_writer(state, writer)

    def _check_writer(self, state: State, writer: Writer) -> None:
        merged = [each for each in self.log if each[0] == writer.name]
        if merged != sorted(set(merged)):
            raise Harm(f"{writer.name}: twice, or out of order: {merged}")
        if not set(writer.told) <= set(merged):
            raise Harm(f"{writer.name}: lost what it was told to be merged")
        if not self.is_done(writer):
            raise Harm(f"{writer.name} is stuck in run {writer.run}")
