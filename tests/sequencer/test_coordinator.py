"""What the leader concludes from reports is the same as if it looked at everything each time; it
looks only at what they name.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format.positions import SessionPosition
from samelog.sequencer.merge.drafts import PlannerLimits
from samelog.sequencer.merge.in_flight import InFlight, MemberFlight
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.views import KeptFiles, verdict
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Merge
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.partitions import Checkpoint
from samelog.sequencer.state.tables.sessions import OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand
from tests.sequencer.test_planner import Bytes, records

NODES = (0, 1, 2)
TOPICS = ("a" * 32, "b" * 32)
RECORD = records(b"x")


class World:
    """A coordinator of a node that leads or not, with two topics of two partitions."""

    def __init__(self) -> None:
        self.machine = StateMachine()
        for name in TOPICS:
            self.machine.apply(CreateTopicCommand(name, name[0], 2, {}, 1))
        self.raft = SimpleNamespace(voters=list(NODES), peers=[], leadership=None, commit=0)
        group: Any = SimpleNamespace(is_leader=False, raft=self.raft, applied_index=0, rounds_s=[])
        self.group = group
        self.told: dict[int, int] = {}
        self.halted: list[tuple[int, int]] = []
        self.now = -1.0
        anything: Any = SimpleNamespace(
            reset=lambda: None,
            in_flight=InFlight(PlannerLimits(), MemberFlight()),
            wall_ms=lambda: 0,
            now=lambda: self.now,
            owes_markers=False,
            forgotten=set(),
        )
        anything.cluster = self.machine
        anything.in_flight = InFlight(PlannerLimits(), MemberFlight())
        self.coordinator = Coordinator(
            0,
            machine=self.machine,
            planner=anything,
            sessions=anything,
            group=group,
            clock=anything,
            is_there=lambda node: True,
            events=SimpleNamespace(cursors_moved=self._moved, checksums_differ=self._differ),
        )

    def _moved(self, cursors: dict[int, int]) -> None:
        self.told.update(cursors)
        self.coordinator.cursors.update(cursors)

    def _differ(self, number: int, offset: int) -> None:
        self.halted.append((number, offset))

    def report(self, node: int, partition: int, offset: int) -> None:
        self.coordinator.merged(node, 0, {partition: offset}, {})

    def lead(self, node: int, partition: int, offset: int) -> None:
        self.group.is_leader = node == 0
        self.coordinator.leadership_changed()

    def delete(self, node: int, partition: int, offset: int) -> None:
        self.machine.apply(DeleteTopicCommand(TOPICS[0]))

    def change_members(self, node: int, partition: int, offset: int) -> None:
        self.raft.voters = [number for number in NODES if number != node or node == 0]
        self.coordinator.members_changed(NODES)

    def tick(self, node: int, partition: int, offset: int) -> None:
        self.coordinator.tick()


steps = st.tuples(
    st.sampled_from(("report", "report", "report", "lead", "delete", "change_members", "tick")),
    st.sampled_from(NODES),
    st.integers(1, 4),
    st.integers(0, 5),
)


@given(st.lists(steps, max_size=30))
def test_cursors_are_what_a_majority_has_of_everything(happens: list[Any]) -> None:
    world = World()
    world.group.is_leader = True
    for what, *values in happens:
        getattr(world, what)(*values)
    world.lead(0, 0, 0)
    world.tick(0, 0, 0)
    known = world.machine.state.partitions.by_number
    expected = world.coordinator.majority_merged(known)
    assert {number: world.told[number] for number in known} == expected


def test_a_majority_has_keys_before_records_are_archived() -> None:
    """One that is away for long holds up nothing."""
    world = World()
    for node, boot, indexed in ((0, 1, 9), (1, 1, 7)):
        assert world.coordinator.majority_indexed(1) == 0
        world.coordinator.files(node, boot, {1: KeptFiles(indexed=indexed)})
    assert world.coordinator.majority_indexed(1) == 7
    world.coordinator.positions(1, 2, {})
    world.coordinator.files(1, 1, {1: KeptFiles(indexed=9)})
    assert world.coordinator.majority_indexed(1) == 0, "what it said before it restarted"


def test_a_report_of_one_partition_makes_the_leader_look_at_one() -> None:
    world = World()
    world.lead(0, 0, 0)
    world.tick(0, 0, 0)
    looked_at: list[int] = []
    majority = world.coordinator.majority_merged

    def noting(partitions: Any) -> dict[int, int]:
        looked_at.extend(partitions)
        return majority(partitions)

    world.coordinator.majority_merged = noting  # type: ignore[method-assign]
    world.report(1, 3, 5)
    world.report(2, 3, 5)
    assert (looked_at, world.told[3]) == ([3, 3], 5)


def test_what_was_reported_before_a_leader_may_act_is_told_when_it_may() -> None:
    """A new leader hears everything at once, before its no-op is applied. Where nothing happened
    afterwards, publishers waited for ever for the word that their records were merged.
    """
    world = World()
    world.report(0, 3, 5)
    world.coordinator.leadership_changed()
    world.report(1, 3, 5)
    world.report(2, 3, 5)
    assert 3 not in world.told
    world.group.is_leader = True  # its no-op is applied, and everybody is silent
    world.coordinator.tick()
    assert world.told[3] == 5


def test_an_older_boot_of_a_node_says_nothing_and_a_newer_one_begins_anew() -> None:
    world = World()
    world.coordinator.positions(1, 5, {7: SessionPosition(0, 0, 9)})
    world.coordinator.merged(1, 5, {1: 5}, {})
    world.coordinator.merged(2, 5, {1: 5}, {})
    world.coordinator.merged(1, 4, {1: 9}, {})
    assert world.coordinator.majority_merged([1]) == {1: 5}
    world.coordinator.positions(1, 6, {})
    assert world.coordinator.majority_merged([1]) == {1: 0}


def test_inputs_that_another_node_holds_more_of_are_looked_at_until_it_does_not() -> None:
    world = World()
    world.machine.state.sessions.next_input = 3
    world.machine.state.sessions.inputs = {1: SimpleNamespace(), 2: SimpleNamespace()}  # type: ignore[dict-item]
    world.coordinator.positions(0, 1, {1: SessionPosition(0, 0, 5), 2: SessionPosition(0, 0, 5)})
    world.coordinator.positions(1, 1, {1: SessionPosition(0, 0, 5), 2: SessionPosition(0, 0, 9)})
    world.coordinator.positions(1, 1, {3: SessionPosition(0, 0, 1)})
    world.coordinator.forget_even()
    behind = {2: SessionPosition(0, 0, 9), 3: SessionPosition(0, 0, 1)}
    assert world.coordinator.ahead(1) == behind  # the third is not known here yet
    world.coordinator.positions(0, 1, {2: SessionPosition(0, 0, 9), 3: SessionPosition(0, 0, 1)})
    world.coordinator.forget_even()
    assert world.coordinator.ahead(1) == {}


def test_a_run_with_partitions_that_its_sender_has_yet_to_open_is_not_closed() -> None:
    """Its end came first: what it had appended was closed unread, and lost."""
    world = World()
    open_run = OpenRunCommand("s", "c" * 32, "samelog://publisher/p", 0, "d" * 32, None, None)
    world.machine.apply(open_run)
    world.group.is_leader = True
    proposed: list[Any] = []

    def propose(commands: list[Any]) -> int:
        proposed.extend(commands)
        return 1

    world.group.propose = propose
    planner: Any = world.coordinator._planner
    planner.place, planner.closing = lambda entry: entry.place, lambda session: None

    def looked_at(ends: dict[tuple[str, int], tuple[int, int]]) -> int:
        proposed.clear()
        world.coordinator.closer.ended["s"] = ("d" * 32, ends)
        world.coordinator._turn()
        return len(proposed)

    assert looked_at({("a", 0): (0, 400), ("a", 1): (0, 0)}) == 0
    world.machine.apply(OpenInputCommand("s", TOPICS[0], 0))
    assert looked_at({("a", 0): (0, 400), ("a", 1): (0, 0)}) == 0
    assert looked_at({("a", 1): (0, 0), ("gone", 0): (0, 9), ("a", 7): (0, 9)}) == 1


def test_a_checksum_is_recorded_once_a_majority_reports_it() -> None:
    world = World()
    proposed: list[Any] = []
    world.group.is_leader, world.group.propose = True, proposed.extend
    world.coordinator.merged(1, 0, {3: 9}, {3: {5: 111}})
    world.coordinator.merged(2, 0, {3: 9}, {3: {5: 222}})
    world.now = 5.0
    world.coordinator.tick()
    assert proposed == []
    world.coordinator.merged(0, 0, {3: 9}, {3: {5: 222}})
    world.now = 10.0
    world.coordinator.tick()
    assert proposed == [Checkpoint([(3, 5, 222)])]


@pytest.mark.parametrize(
    ("votes", "voters", "expected"),
    [
        ({}, 3, (None, None)),
        ({(5, 1): 1}, 1, ((5, 1), None)),
        ({(5, 1): 2, (5, 2): 1}, 3, ((5, 1), None)),
        ({(5, 1): 1, (5, 2): 1}, 3, (None, None)),
        ({(5, 1): 1, (5, 2): 1, (5, 3): 1}, 3, (None, 5)),
        ({(5, 1): 1, (5, 2): 1}, 2, (None, 5)),
        ({(5, 1): 2, (9, 1): 1, (9, 2): 1, (9, 3): 1}, 3, ((5, 1), None)),
        ({(5, 1): 2, (5, 2): 2}, 5, (None, None)),
        ({(5, 1): 2, (5, 2): 2, (5, 3): 1}, 5, (None, 5)),
        ({(5, 1): 1, (9, 1): 1, (9, 2): 1, (9, 3): 1}, 3, (None, 9)),
    ],
)
def test_checksums_are_judged_by_what_a_majority_has_or_may_yet_have(
    votes: dict[tuple[int, int], int], voters: int, expected: object
) -> None:
    assert verdict(votes, voters) == expected


@pytest.mark.parametrize("leads", [True, False])
def test_every_node_halts_a_partition_on_which_no_majority_can_agree(leads: bool) -> None:
    world = World()
    world.group.is_leader = leads
    world.now = 1.0
    for node in NODES:
        assert world.halted == []
        world.coordinator.merged(node, 0, {3: 9}, {3: {9: node}})
        world.now += 5.0
        world.coordinator.tick()
    world.now += 5.0
    world.coordinator.tick()
    assert world.halted == [(3, 9)]


@pytest.mark.parametrize(
    ("merged", "is_waited_for"), [((5, 4, 4), True), ((5, 5, 4), True), ((5, 5, 9), False)]
)
def test_checksums_are_waited_for_that_may_come(
    merged: tuple[int, int, int], *, is_waited_for: bool
) -> None:
    """Who copied past an offset never reports the checksum there: nobody is kept awake."""
    world = World()
    world.lead(0, 0, 0)
    for node, offset in enumerate(merged):
        world.coordinator.merged(node, 0, {1: offset}, {} if node else {1: {5: 7}})
    world.now = 1e9
    world.coordinator._compare_samples()
    assert world.coordinator._unsettled.sampled == ({1} if is_waited_for else set())
    assert world.halted == []
    world.coordinator.merged(1, 0, {1: 9}, {1: {9: 8}})
    assert world.coordinator._unsettled.sampled == {1}, "there is something new"


def test_nothing_is_planned_twice_after_a_rejection() -> None:
    """Entries in flight for one topic were planned before those for a deleted one are rejected."""
    proposed = asyncio.run(_propose_around_a_deleted_topic())
    assert [[merge.partition for merge in merges] for merges in proposed] == [[1], [3], [3]]
    assert [merges[0].base_offset for merges in proposed[1:]] == [0, 1]


class Leading:
    """The leader of a group that has an input in each of two topics, and what it proposes."""

    def __init__(self, *voters: int) -> None:
        self.machine, self.source, self.proposed = StateMachine(), Bytes(), list[list[Merge]]()
        self.machine.apply(OpenRunCommand("s", "c" * 32, "i", 0, "d" * 32, None, None))
        for name in TOPICS:
            self.machine.apply(CreateTopicCommand(name, name[0], 2, {}, 1))
            self.machine.apply(OpenInputCommand("s", name, 0))
        self.raft = SimpleNamespace(voters=list(voters), leadership=True, term=1, commit=0)
        group: Any = SimpleNamespace(
            is_leader=True, raft=self.raft, propose=self._propose, applied_index=0, rounds_s=[]
        )
        rest: Any = SimpleNamespace(wall_ms=lambda: 0, now=lambda: 0.0)
        self.coordinator = Coordinator(
            0,
            machine=self.machine,
            planner=Planner(self.machine, PlannerLimits()),
            sessions=cast(Any, self.source),
            group=group,
            clock=rest,
            is_there=lambda node: True,
            events=rest,
        )

    def _propose(self, merges: list[Merge]) -> int:
        self.proposed.append(merges)
        return len(self.proposed)

    async def bring(self, number: int) -> None:
        """The leader holds a record more of an input."""
        self.source.put(number, RECORD)
        self.coordinator.positions(0, 0, {number: self.source.end(number)})
        await asyncio.sleep(0)

    def apply(self, index: int) -> None:
        """An entry is committed."""
        outcomes = list(map(self.machine.apply, self.proposed[index - 1]))
        rejected = any(isinstance(each, Rejection) for each in outcomes)
        self.coordinator.applied(index, self.proposed[index - 1], rejected)


async def _propose_around_a_deleted_topic() -> list[list[Merge]]:
    leading = Leading(0)
    await leading.bring(1)
    await leading.bring(2)
    leading.machine.apply(DeleteTopicCommand(TOPICS[0]))
    leading.apply(1)
    await asyncio.sleep(0)
    leading.apply(2)
    await leading.bring(2)
    leading.apply(3)
    await asyncio.sleep(0)
    return leading.proposed


def test_what_waited_for_a_voter_that_left_is_planned() -> None:
    """The last record of a run waited for the report of a voter; the voter left the group, nothing
    else happened in it, and the run never ended (world 900000303).
    """

    async def body() -> None:
        leading = Leading(0, 1)
        await leading.bring(1)
        assert not leading.proposed, "the other voter has not reported"
        leading.raft.voters = [0]
        leading.coordinator.members_changed({0})
        await asyncio.sleep(0)
        assert [[merge.partition for merge in merges] for merges in leading.proposed] == [[1]]

    asyncio.run(body())
