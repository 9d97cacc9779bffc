"""The worst request of each API takes no long turn of a node's event loop.

Counted in calls, on a whole node in this process: every list of every request is filled with many
elements, one list at a time, and sent by a client without any right and by one with all rights. The
clock that slices go by is the number of calls, so that a slow machine changes nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar
from unittest.mock import MagicMock

import pytest

from samelog.admin.group_answers import GroupBeaten, PositionsNoted
from samelog.admin.group_requests import GROUP_TOPICS_MAX, BeatGroup, NotePositions, Position
from samelog.cli.node_process import _group_desk, _kafka_parts
from samelog.kafka.any_broker import KafkaClient
from samelog.kafka.broker import Broker
from samelog.kafka.clients.pipeline import PipelineLimits
from samelog.kafka.clients.quotas import Memory
from samelog.kafka.producer_log import ProducerLog
from samelog.kafka.registry import APIS
from samelog.kafka.server.connection import KafkaConnection
from samelog.kafka.server.dispatch import ApiDispatcher
from samelog.runtime import slices
from samelog.sequencer.admin.handlers import answer as answer_of
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.groups import ClassicMember, CommitOffsets, CommittedOffset
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from tests.kafka.wire import request
from tests.kafka.worst import TOPIC, worst_requests
from tests.sequencer.cluster import RunWith, until

T = TypeVar("T")

ELEMENTS = 1_500
CALL_S = 2e-7
"""What a call counts for in the slices' clock: a slice has 5,000."""
BOUND = 14_000
"""Calls of one turn: a slice, a part of a request, and what the node does besides."""
STRANGER, OPERATOR = "samelog://user/stranger", "samelog://user/operator"


class Turns:
    """Counts calls of functions, and the most calls of one turn of the event loop."""

    def __init__(self) -> None:
        self.calls = 0
        self.most = 0
        self._before = 0
        self._is_on = False

    def __enter__(self) -> Turns:
        self._is_on, self.most, self._before = True, 0, self.calls
        sys.setprofile(self._called)
        self._tick()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_on = False
        sys.setprofile(None)
        self._end_turn()

    def count(self, work: Callable[[], T]) -> T:
        """Count the calls of work that takes one turn."""
        sys.setprofile(self._called)
        try:
            return work()
        finally:
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        self.calls += event in ("call", "c_call")

    def _end_turn(self) -> None:
        self.most = max(self.most, self.calls - self._before)
        self._before = self.calls

    def _tick(self) -> None:
        self._end_turn()
        if self._is_on:
            asyncio.get_running_loop().call_soon(self._tick)

    def now(self) -> float:
        """The clock of slices."""
        return self.calls * CALL_S


class Asking:
    """A client's connection to a node in this process."""

    def __init__(self, dispatcher: ApiDispatcher[Any], identity: str) -> None:
        self.answers = 0
        self.transport = MagicMock()
        self.transport.is_closing.return_value = False
        self.transport.get_write_buffer_size.return_value = 0
        self.transport.writelines = self._written
        admit = partial(KafkaClient, identity, "l", identity)
        self.connection = KafkaConnection(
            dispatcher,
            PipelineLimits(),
            Memory[KafkaConnection](1 << 30),
            admit=lambda *_: admit(),
            ended=lambda *_: None,
        )
        self.connection.connection_made(self.transport)

    def _written(self, buffers: list[Any]) -> None:
        self.answers += 1

    async def answered(self) -> None:
        """Wait until it is, or closed, which is an answer to what no client sends."""
        await until(lambda: bool(self.answers or self.transport.close.called), "an answer")


async def serve(node: Node) -> ApiDispatcher[Any]:
    """What answers Kafka clients of a node."""
    desk = _group_desk(node)
    await desk.start()
    batches = ProducerLog("n", node.peers.number, node.logs)
    batches.start()
    await node.raft.proposer.propose(CreateTopicCommand("f" * 32, TOPIC, 200, {}, 1))
    return ApiDispatcher(Broker(_kafka_parts(node, desk, batches)), APIS)


def test_no_request_takes_a_long_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    turns, found = Turns(), dict[Any, int]()

    async def body(nodes: list[Node]) -> None:
        dispatcher = await serve(nodes[0])
        rights = nodes[0].member.rights
        for name in ("may_subscribe", "may_publish", "may_push", "may_use_group", "is_admin"):
            monkeypatch.setattr(rights, name, lambda who, *_: who == OPERATOR)
        monkeypatch.setattr(Broker, "auto_creates", False)
        shared = slices.slices()
        monkeypatch.setattr(shared, "now", turns.now)
        for worst in worst_requests():
            data = worst.frame(ELEMENTS)
            for identity in (STRANGER, OPERATOR):
                asking = Asking(dispatcher, identity)
                with turns:
                    asking.connection.data_received(data)
                    await asking.answered()
                place = APIS[worst.key].name, worst.version, ".".join(worst.path)
                found[*place, identity] = turns.most
                asking.connection.connection_lost(None)

    run_with(tmp_path, 1, body)
    assert not {what: most for what, most in found.items() if most > BOUND}


MANY_GROUPS = 2_000
BY_EXPRESSION: dict[str, Any] = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout_ms": 30_000,
    "subscribed_topic_names": None,
    "server_assignor": None,
    "topic_partitions": [],
}
"""ConsumerGroupHeartbeat."""
ABOUT_GROUPS: dict[int, dict[str, Any]] = {
    16: {"states_filter": [], "types_filter": []},
    15: {"groups": [f"g{n}" for n in range(90)], "include_authorized_operations": False},
}
"""ListGroups and DescribeGroups."""


def test_many_groups_take_no_long_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    turns, found = Turns(), dict[str, int]()

    async def body(nodes: list[Node]) -> None:
        dispatcher = await serve(nodes[0])
        await nodes[0].raft.proposer.until_begun()
        monkeypatch.setattr(nodes[0].member.rights, "may_use_group", lambda *_: True)
        offset = CommittedOffset(0, -1, "", nodes[0].member.clock.wall_ms())
        made = [CommitOffsets([(f"g{n}", [(1, offset)])]) for n in range(MANY_GROUPS)]
        await nodes[0].raft.proposer.propose_all(made, longer_s=60)
        members = {f"m{n}": ClassicMember(f"m{n}", None, "c", "/", 1, 1, []) for n in range(100)}
        for group in [*nodes[0].logs.machine.state.groups.by_id.values()][:90]:
            group.members.update(members)
        monkeypatch.setattr(slices.slices(), "now", turns.now)
        for key, tree in ABOUT_GROUPS.items():
            asking = Asking(dispatcher, OPERATOR)
            with turns:
                asking.connection.data_received(request(key, APIS[key].last, tree))
                await asking.answered()
            found[APIS[key].name] = turns.most
            asking.connection.connection_lost(None)

    run_with(tmp_path, 1, body)
    assert not {what: most for what, most in found.items() if most > BOUND}


def test_many_noted_positions_take_no_long_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    turns, topic = Turns(), "e" * 32

    async def body(nodes: list[Node]) -> None:
        (node,) = nodes
        node.services.group_desk = desk = _group_desk(node)
        await desk.start()
        made = CreateTopicCommand(topic, "wide", MANY_GROUPS, {}, 1)
        await node.raft.proposer.propose(made)
        for name in ("may_use_group", "may_subscribe"):
            monkeypatch.setattr(node.member.rights, name, lambda *_: True)
        monkeypatch.setattr(slices.slices(), "now", turns.now)
        noted = {str(number): number for number in range(MANY_GROUPS)}
        with turns:
            answer = await answer_of(node, NotePositions("g", "wide", topic, noted), OPERATOR)
        assert answer == PositionsNoted(noted=True)
        offsets = node.logs.machine.state.groups.by_id["g"].offsets.values()
        assert sorted(each.offset for each in offsets) == sorted(noted.values())

    run_with(tmp_path, 1, body)
    assert turns.most <= BOUND


def test_a_long_heartbeat_takes_no_long_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    """It joins, says that it owns all partitions, and commits a position in each."""
    turns, found = Turns(), dict[str, int]()

    async def body(nodes: list[Node]) -> None:
        (node,) = nodes
        node.services.group_desk = desk = _group_desk(node)
        await desk.start()
        await node.raft.proposer.propose(CreateTopicCommand("e" * 32, "wide", MANY_GROUPS, {}, 1))
        for name in ("may_use_group", "may_subscribe"):
            monkeypatch.setattr(node.member.rights, name, lambda *_: True)
        monkeypatch.setattr(slices.slices(), "now", turns.now)
        topics = ("wide", *(f"n{n}" for n in range(GROUP_TOPICS_MAX - 1)))
        with turns:
            joined = await answer_of(node, BeatGroup("g", "m", 0, topics), OPERATOR)
        found["joins"] = turns.most
        assert isinstance(joined, GroupBeaten)
        assert joined.assigned is not None
        numbers = [each.number for each in joined.assigned]
        commits = tuple(Position(number, number) for number in numbers)
        foreign = Position(max(numbers) + 1, 1)
        said = BeatGroup(
            "g", "m", joined.epoch, topics, owned=tuple(numbers), commits=(foreign, *commits)
        )
        with turns:
            answer = await answer_of(node, said, OPERATOR)
        found["commits"] = turns.most
        assert isinstance(answer, GroupBeaten)
        assert answer.not_committed == (foreign.partition,)
        offsets = node.logs.machine.state.groups.by_id["g"].offsets
        assert {number: known.offset for number, known in offsets.items()} == {
            number: number for number in numbers
        }
        assert len(numbers) == MANY_GROUPS

    run_with(tmp_path, 1, body)
    assert not {what: most for what, most in found.items() if most > BOUND}


def test_an_expression_over_many_topics_takes_no_long_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    turns = Turns()

    async def body(nodes: list[Node]) -> None:
        dispatcher = await serve(nodes[0])
        await nodes[0].raft.proposer.until_begun()
        for name in ("may_use_group", "may_subscribe"):
            monkeypatch.setattr(nodes[0].member.rights, name, lambda *_: True)
        made = [CreateTopicCommand(f"{n:032d}", f"n{n}", 1, {}, 1) for n in range(MANY_GROUPS)]
        await nodes[0].raft.proposer.propose_all(made, longer_s=60)
        monkeypatch.setattr(slices.slices(), "now", turns.now)
        asking = Asking(dispatcher, OPERATOR)
        tree = BY_EXPRESSION | {"subscribed_topic_regex": "n.*"}
        with turns:
            asking.connection.data_received(request(68, 1, tree))
            await asking.answered()
        asking.connection.connection_lost(None)
        state = nodes[0].logs.machine.state
        assert len(state.groups.by_id["g"].consumers["m"].matched) == MANY_GROUPS

    run_with(tmp_path, 1, body)
    assert turns.most <= BOUND
