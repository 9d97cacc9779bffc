"""What is told of the cluster: by which command, in which order, once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from samelog.archiver.command import ArchiveCommand
from samelog.config.authorisation import Rights
from samelog.config.tables.node import Grant
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.kafka.any_broker import AppendResult
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.event_writer import EventWriter
from samelog.kafka.producer_log import ProducerLog
from samelog.sequencer.merge.dedup import Judgement, judge_ids
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands, encode_commands
from samelog.sequencer.state.instructions import Verdict
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.events import EventsWritten, NoteElection, RecordEvent
from samelog.sequencer.state.tables.members import Member, NodeStarted, RaiseLevel, SetMembers
from samelog.sequencer.state.tables.mirrors import MirrorGap, PromoteMirrors
from samelog.sequencer.state.tables.placement import OpenPartition
from samelog.sequencer.state.tables.resets import HardReset, SoftReset
from samelog.sequencer.state.tables.sites import AddSite, RemoveSite
from samelog.sequencer.state.tables.topics import (
    AddPartitions,
    AlterTopicCommand,
    CreateTopicCommand,
    DeleteTopicCommand,
)
from samelog.sequencer.state.tables.views import CreateViewCommand, DropViewCommand
from samelog.sequencer.state.units.events import topic_of_events
from tests.sequencer.mirroring import SOURCE

A, B = Member(0, "a", "a:1", "i", True), Member(1, "b", "b:1", "j", True)
MAKE = CreateTopicCommand("e", "__events", 1, {}, 1)


@pytest.fixture
def machine() -> StateMachine:
    machine = StateMachine()
    machine.apply(MAKE)
    return machine


def told(machine: StateMachine) -> list[tuple[int, str, str]]:
    return [(each.number, each.kind, each.subject) for each in machine.state.events.waiting]


def merged(machine: StateMachine, last: int) -> None:
    """The topic has events up to this one, by an entry of its group."""
    machine.state.watermarks.learn(1, [("e", last)])
    machine.state.partitions.by_number[1].next_offset = last + 1


def test_what_happens_is_numbered(machine: StateMachine) -> None:
    machine.apply(CreateTopicCommand("t", "t", 2, {}, 5))
    machine.apply(AlterTopicCommand("t", {"retention.ms": "5"}, []))
    machine.apply(AddPartitions("t", 3))
    machine.apply(SetMembers([A, B]))
    machine.apply(SetMembers([A]))
    machine.apply(NodeStarted("a", 1, 0, "life", 1))
    machine.apply(ArchiveCommand(2, 0, 0, 0, 7, "truncated by me"))
    machine.apply(RecordEvent(8, "fork", "a lost a file"))
    machine.apply(DeleteTopicCommand("t"))
    assert told(machine) == [
        (0, "topic created", "__events"),
        (1, "topic created", "t"),
        (2, "topic altered", "t"),
        (3, "topic altered", "t"),
        (4, "member added", "a"),
        (5, "member added", "b"),
        (6, "member removed", "b"),
        (7, "member started", "a"),
        (8, "records deleted", "t-0"),
        (9, "fork", ""),
        (10, "topic deleted", "t"),
    ]


def test_a_view_is_a_topic_that_is_made_and_goes(machine: StateMachine) -> None:
    machine.apply(CreateTopicCommand("t", "t", 1, {}, 5))
    for _ in range(2):
        machine.apply(CreateViewCommand("v", "v", "t", "_offset > 5", [], 0, {}, "", "me", 6))
    machine.apply(CreateViewCommand("w", "v", "t", "_offset > 5", [], 0, {}, "", "me", 6))
    for _ in range(2):
        machine.apply(DropViewCommand("v"))
    found = [(each.kind, each.subject, each.detail) for each in machine.state.events.waiting]
    assert found[2:] == [
        ("topic created", "v", "a view of t"),
        ("topic deleted", "v", "a view of t"),
    ]


def test_a_higher_level_and_resets_are_told(machine: StateMachine) -> None:
    machine.apply(SetMembers([A]))
    machine.apply(NodeStarted("a", 1, 0, "life", 2))
    machine.apply(RaiseLevel(0, 2, 6))
    machine.apply(SoftReset("soft", 7))
    machine.apply(HardReset("hard", 8, 1))
    found = [(each.kind, each.subject, each.detail) for each in machine.state.events.waiting]
    assert found[-3:] == [
        ("level raised", "", "feature level 2"),
        ("soft reset", "", "soft"),
        ("hard reset", "", "hard"),
    ]


def test_what_is_remembered_of_sites_and_mirrors_is_told_once(machine: StateMachine) -> None:
    for _ in range(2):
        machine.apply(AddSite("lon", True, 5))
        machine.apply(CreateTopicCommand("m", "m", 1, {}, 1, source=SOURCE))
    [number] = machine.state.topics.by_id["m"].partition_numbers
    machine.apply(MirrorGap(number, 0, 5, 5, None, 6, "it begins there"))
    machine.state.partitions.by_number[number].next_offset = 7
    for _ in range(2):
        machine.apply(MirrorGap(number, 7, 9, 5, None, 6, "archived"))
    for _ in range(2):
        machine.apply(PromoteMirrors(["m"], 8, "me"))
        machine.apply(RemoveSite("lon", 9))
    waiting = machine.state.events.waiting
    assert [(each.kind, each.subject) for each in waiting[1:]] == [
        ("site-added", "lon"),
        ("topic created", "m"),
        ("mirror-gap", "m-0"),
        ("mirror-promoted", "m"),
        ("site-removed", "lon"),
    ]
    remembered = [(each.at_ms, each.kind, each.text) for each in machine.state.events.remembered]
    events = [(each.at_ms, each.kind, each.detail) for each in waiting]
    assert [each for each in events if each[1] != "topic created"] == remembered


def test_what_is_refused_did_not_happen(machine: StateMachine) -> None:
    assert isinstance(machine.apply(CreateTopicCommand("f", "__events", 1, {}, 1)), Rejection)
    machine.apply(MAKE)  # asked for again
    assert len(machine.state.events.waiting) == 1


def test_without_the_topic_nothing_is_kept() -> None:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t", "t", 1, {}, 1))
    assert told(machine) == []


def test_an_election_is_told_once(machine: StateMachine) -> None:
    for term in (3, 3, 2):
        machine.apply(NoteElection(term, f"n{term}", 5))
    assert [subject for _, kind, subject in told(machine) if kind == "election"] == ["n3"]


def test_what_the_topic_is_known_to_have_waits_no_more(machine: StateMachine) -> None:
    for name in ("t", "u"):
        machine.apply(CreateTopicCommand(name, name, 1, {}, 1))
    command = EventsWritten("e", 1)
    assert decode_commands(encode_commands([command])) == [command]
    again = StateMachine.decode(machine.encode())
    again.apply(EventsWritten("another", 2))
    assert [number for number, _, _ in told(again)] == [0, 1, 2]
    again.apply(command)
    again.apply(EventsWritten("e", 0))
    again.apply(CreateTopicCommand("v", "v", 1, {}, 1))
    assert [number for number, _, _ in told(again)] == [2, 3]


def test_nobody_else_writes_events() -> None:
    grant = Grant(
        identity="samelog://*", publish_topics=("*",), publish_sessions=("*",), admin=True
    )
    rights = Rights((grant,), ("a",))
    assert rights.may_publish("samelog://user/x", "s", "other")
    assert not rights.may_publish("samelog://user/x", "s", "__events")


class World:
    """Group 0 and the group of the topic, which may be another one; one node leads both."""

    def __init__(self, cluster: StateMachine, group: StateMachine | None = None) -> None:
        self.cluster, self.group = cluster, cluster if group is None else group
        self.opened: list[int | None] = []
        self.batches: list[list[tuple[int, bytes | None]]] = []
        self.outcome = AppendResult(ErrorCode.none)
        self.cursors: dict[int, int] = {}
        self.leads = True
        replica = SimpleNamespace(
            raft=SimpleNamespace(
                group=SimpleNamespace(raft=SimpleNamespace(term=4)),
                coordinator=SimpleNamespace(cursors=self.cursors),
                proposer=SimpleNamespace(
                    propose=self._propose, clock=SimpleNamespace(wall_ms=lambda: 1000)
                ),
            ),
            logs=SimpleNamespace(machine=self.group, intake=SimpleNamespace(checker=None)),
        )
        self.raft_group = replica.raft.group
        groups = SimpleNamespace(replica_of=lambda number: replica)
        self.writer = EventWriter("a", 0, cast(Any, replica.raft), cluster, cast(Any, groups))

    async def _propose(self, command: Any) -> Any:
        outcome = self.cluster.apply(command)
        if self.group is not self.cluster:
            self.group.apply(command)
        return outcome

    async def _open(self, log: ProducerLog, topic: Any, index: int) -> None:
        self.opened.append(log._own.dedup_base)
        log._run = cast(Any, SimpleNamespace(inputs={topic.partition_numbers[index]: 1}))

    def _append(self, topic: Any, index: int, data: Any, records: int) -> Any:
        batch = bytes(data)
        found = kernels.decode_records(batch, 0, len(batch), "__events", 0, decompress)
        first = int.from_bytes(batch[53:57], "big")
        self.batches.append([(first + at, each.key) for at, each in enumerate(found)])
        done = asyncio.get_running_loop().create_future()
        done.set_result(self.outcome)
        return done

    def look(self, times: int = 1) -> None:
        async def body() -> None:
            for _ in range(times):
                await self.writer.look()

        self.raft_group.is_leader = self.leads

        def open_(log: ProducerLog, topic: Any, index: int) -> Any:
            return self._open(log, topic, index)

        def append(log: ProducerLog, topic: Any, index: int, data: Any, records: int) -> Any:
            return self._append(topic, index, data, records)

        with (
            patch.object(ProducerLog, "open", open_),
            patch.object(ProducerLog, "append", append),
            patch.object(ProducerLog, "start"),
            patch.object(ProducerLog, "close"),
        ):
            asyncio.run(body())


@pytest.fixture(params=["group 0", "data group"])
def world(machine: StateMachine, request: pytest.FixtureRequest) -> World:
    """With the topic in either kind of group."""
    if request.param == "group 0":
        return World(machine)
    group = StateMachine()
    group.apply(OpenPartition(1, "e", "__events", {}, 1, [1]))
    return World(machine, group)


def test_the_leader_writes_what_waits_with_its_numbers(world: World) -> None:
    world.look()
    [batch] = world.batches
    assert batch == [(0, b"topic created"), (1, b"topic altered"), (2, b"election")]
    topic = topic_of_events(world.cluster.state)
    assert topic is not None
    assert len(topic.schemas) == 1
    world.look(2)
    assert len(world.batches) == 1, "it is on its way"
    world.cluster.apply(CreateTopicCommand("t", "t", 1, {}, 1))
    world.look()
    assert world.batches[1:] == [[(3, b"topic created")]]
    assert world.opened == [0]


def test_who_does_not_lead_the_group_of_the_topic_writes_nothing(world: World) -> None:
    world.leads = False
    world.look()
    assert (world.batches, world.opened) == ([], [])


def test_another_leader_goes_on_behind_what_the_topic_has(world: World) -> None:
    world.cluster.apply(CreateTopicCommand("t", "t", 1, {}, 1))
    merged(world.group, 1)
    world.look()
    assert [number for number, _ in world.batches[0]] == [2, 3]


def test_what_was_not_taken_is_written_again_in_another_run(world: World) -> None:
    """In the same run its numbers would be read as 2^31 higher ones, and swallow all later ones."""
    world.outcome = AppendResult(ErrorCode.not_leader_or_follower)
    world.look(2)
    assert [[number for number, _ in each] for each in world.batches] == [[0, 1, 2]] * 2
    assert world.opened == [0, 0]


def test_group_0_keeps_what_a_majority_has_not_merged_durably(world: World) -> None:
    world.look()
    merged(world.group, 2)
    world.look(2)
    assert len(told(world.cluster)) == 3
    world.cursors[1] = 2
    world.look(2)
    assert len(told(world.cluster)) == 3
    world.cursors[1] = 3
    world.look(2)
    assert told(world.cluster) == []


def test_numbers_that_a_recovery_leaves_out_begin_another_batch(world: World) -> None:
    world.look()
    merged(world.group, 2)
    left_out = 1 << 20
    world.cluster.apply(CreateTopicCommand("t", "t", 1, {}, 1))
    world.cluster.state.events.next_number += left_out
    world.cluster.apply(CreateTopicCommand("u", "u", 1, {}, 1))
    world.look(2)
    numbers = [[number for number, _ in each] for each in world.batches[1:]]
    assert numbers == [[3], [4 + left_out]]
    assert judge_ids(2, 4 + left_out, 1) == Judgement(Verdict.TAKE)


def test_a_topic_that_is_created_again_has_dedup_ids_of_its_own(world: World) -> None:
    world.look()
    merged(world.group, 2)
    world.cluster.apply(DeleteTopicCommand("e"))
    assert told(world.cluster) == []
    world.cluster.apply(CreateTopicCommand("f", "__events", 1, {}, 1))
    world.cluster.apply(EventsWritten("e", 9))
    assert told(world.cluster) == [(3, "topic created", "__events")]
