"""What is told of the cluster: by which command, in which order, once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from samelog.archiver.command import ArchiveCommand
from samelog.config.authorisation import Rights
from samelog.config.tables.node import Expiry, Grant
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.kafka.event_writer import EventWriter
from samelog.sequencer.state import expiry
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Sequence5
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.events import NoteElection, RecordEvent
from samelog.sequencer.state.tables.members import Member, NodeStarted, RaiseLevel, SetMembers
from samelog.sequencer.state.tables.mirrors import CreateMirror, MirrorGap, PromoteMirrors
from samelog.sequencer.state.tables.placement import PlaceTopic
from samelog.sequencer.state.tables.resets import HardReset, SoftReset
from samelog.sequencer.state.tables.sites import AddSite, RemoveSite
from samelog.sequencer.state.tables.topics import (
    AddPartitions,
    AlterTopicCommand,
    CreateTopicCommand,
    DeleteTopicCommand,
)
from samelog.sequencer.state.tables.views import CreateViewCommand, DropViewCommand
from samelog.sequencer.state.units.events import EVENTS_PRODUCER, topic_of_events, untold
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


def written(machine: StateMachine, first: int, last: int) -> None:
    """The topic has these events."""
    batch = Sequence5(EVENTS_PRODUCER, 0, first, last, first)
    machine.state.producers.batches.setdefault(EVENTS_PRODUCER, {}).setdefault(1, []).append(batch)
    machine.state.producers.seen_ms[EVENTS_PRODUCER] = 1


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
        machine.apply(CreateMirror("m", "m", 1, {}, 1, SOURCE))
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


def test_what_the_topic_has_waits_no_more(machine: StateMachine) -> None:
    machine.apply(CreateTopicCommand("t", "t", 1, {}, 1))
    topic = topic_of_events(machine.state)
    assert topic is not None
    written(machine, 0, 0)
    assert [each.number for each in untold(machine.state, topic)] == [1]
    again = StateMachine.decode(machine.encode())
    again.apply(CreateTopicCommand("u", "u", 1, {}, 1))
    written(again, 1, 1)
    again.apply(CreateTopicCommand("v", "v", 1, {}, 1))
    assert [number for number, _, _ in told(again)] == [2, 3]


def test_who_writes_events_is_never_forgotten(machine: StateMachine) -> None:
    written(machine, 0, 0)
    machine.state.producers.seen_ms[7] = 1
    found = expiry.due(machine, 1 << 60, Expiry(), is_released=lambda entry: True)
    assert found is not None
    assert [producer for producer, _ in found.producers] == [7]


def test_events_are_in_no_data_group(machine: StateMachine) -> None:
    machine.apply(DeleteTopicCommand("e"))
    refused = machine.apply(PlaceTopic(0, "e2", "__events", {}, 1, [], [1]))
    assert isinstance(refused, Rejection)
    assert "on every node" in refused.message


def test_nobody_else_writes_events() -> None:
    grant = Grant(
        identity="samelog://*", publish_topics=("*",), publish_sessions=("*",), admin=True
    )
    rights = Rights((grant,), ("a",))
    assert rights.may_publish("samelog://user/x", "s", "other")
    assert not rights.may_publish("samelog://user/x", "s", "__events")


class Log:
    """Takes batches, as ProducerLog does."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []

    async def open(self, topic: Any, index: int) -> None:
        pass

    def append(self, topic: Any, index: int, data: memoryview, records: int) -> Any:
        self.batches.append(bytes(data))
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


def test_the_leader_writes_what_waits_with_its_numbers(machine: StateMachine) -> None:
    async def propose(command: Any) -> Any:
        return machine.apply(command)

    raft = SimpleNamespace(
        proposer=SimpleNamespace(propose=propose),
        group=SimpleNamespace(is_leader=True, raft=SimpleNamespace(term=4)),
    )
    taken, clock = Log(), SimpleNamespace(wall_ms=lambda: 1000)
    writer = EventWriter("a", cast(Any, raft), machine, cast(Any, taken), cast(Any, clock))
    topic = topic_of_events(machine.state)
    assert topic is not None
    asyncio.run(writer.tell(topic))
    [batch] = taken.batches
    records = kernels.decode_records(batch, 0, len(batch), "__events", 0, decompress)
    kinds = [record.key for record in records]
    assert kinds == [b"topic created", b"topic altered", b"election"]
    assert len(topic.schemas) == 1
    written(machine, 0, 2)
    asyncio.run(writer.tell(topic))
    assert len(taken.batches) == 1
