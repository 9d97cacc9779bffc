"""Lag of consumer groups: every partition of a group counts, whether it committed there or not."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import cast

import pytest

from samelog.admin.requests import DescribeGroup
from samelog.format.steps import finished
from samelog.http.console.look import SECTIONS
from samelog.sequencer.admin.groups import describe_group, group_lags, group_row
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.groups import (
    ClassicMember,
    CommittedOffset,
    ConsumerGroupRecord,
    ConsumerMember,
    Phase,
)
from samelog.sequencer.state.tables.topics import CreateTopicCommand

ENDS = {1: 100, 2: 50, 3: 7}
"""By partition number: of ticks/0, ticks/1 and other/0."""


def assignment(*topics: tuple[str, tuple[int, ...]], version: int = 1) -> bytes:
    """A ConsumerProtocolAssignment."""
    parts = [struct.pack(">hi", version, len(topics))]
    for name, numbers in topics:
        parts.append(struct.pack(">h", len(name)) + name.encode())
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts) + struct.pack(">i", -1)


def classic(*assigned: bytes, protocol_type: str = "consumer") -> ConsumerGroupRecord:
    names = [f"m{index}" for index in range(len(assigned))]
    members = {
        name: ClassicMember(name, None, "client", "/::1", 1, 1, [], given)
        for name, given in zip(names, assigned, strict=True)
    }
    return ConsumerGroupRecord(1, Phase.STABLE, protocol_type, "range", "m0", members)


def by_number(*assigned: list[int]) -> ConsumerGroupRecord:
    """A group of the consumer protocol, or of native subscribers."""
    consumers = {
        f"m{index}": ConsumerMember(f"m{index}", None, "client", "/::1", 1, [], assigned=given)
        for index, given in enumerate(assigned)
    }
    return ConsumerGroupRecord(1, Phase.STABLE, "consumer", consumers=consumers)


@pytest.fixture
def node() -> ServedNode:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t1", "ticks", 2, {}, 1))
    machine.apply(CreateTopicCommand("t2", "other", 1, {}, 1))
    for number, end in ENDS.items():
        machine.state.partitions.by_number[number].next_offset = end
    starts = {1: SimpleNamespace(log=SimpleNamespace(start_offset=10))}
    logs = SimpleNamespace(machine=machine, merging=SimpleNamespace(partitions=starts))

    async def catch_up() -> None: ...

    raft = SimpleNamespace(proposer=SimpleNamespace(catch_up=catch_up))
    held = SimpleNamespace(held=())
    return cast(
        ServedNode, SimpleNamespace(logs=logs, raft=raft, group_desk=None, data_groups=held)
    )


TICKS, OTHER = ("ticks", (0, 1)), ("other", (0,))
COMMITTED = {2: CommittedOffset(45, -1, "", 1)}
GROUPS = {
    "classic, nothing committed": (classic(assignment(TICKS)), {1: 90, 2: 50}),
    "classic, two members": (
        classic(assignment(("ticks", (1,))), assignment(("ticks", (0,)), OTHER)),
        {1: 90, 2: 50, 3: 7},
    ),
    "consumer protocol, nothing committed": (by_number([1], [2, 3]), {1: 90, 2: 50, 3: 7}),
    "topics and partitions that are gone": (
        classic(assignment(("gone", (0,)), ("ticks", (0, 2, -1, 0)))),
        {1: 90},
    ),
    "assignments of another protocol": (classic(assignment(TICKS), protocol_type="connect"), {}),
    "bytes that are no assignment": (classic(b"\0\1\xff", b""), {}),
}


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("committed", [{}, COMMITTED], ids=["none", "partly"])
def test_every_place_counts_the_same_lag(
    node: ServedNode, name: str, committed: dict[int, CommittedOffset]
) -> None:
    group, wanted = GROUPS[name]
    group.offsets = dict(committed)
    lags = {**wanted, **dict.fromkeys(committed, 5)}
    node.logs.machine.state.groups.by_id["g"] = group
    assert finished(group_lags(node, group)) == lags
    assert finished(group_row(node, "g", group)).lag == sum(lags.values())
    [(_, shown)] = filter(None, SECTIONS["groups"](node))
    assert shown["lag"] == sum(shown["lags"].values()) == sum(lags.values())
    found = asyncio.run(describe_group(node, DescribeGroup("g")))
    assert sum(each.lag for each in found.partitions) == sum(lags.values())
    rows = {(each.topic, each.partition): each.committed for each in found.partitions}
    assigned = {place for member in found.members for place in member.partitions}
    assert assigned <= set(rows)
    assert len(rows) == len(lags)
    assert sorted(rows.values()) == sorted(
        [-1] * (len(lags) - len(committed)) + [45] * len(committed)
    )


def test_a_group_without_members_and_commits_has_no_lag(node: ServedNode) -> None:
    assert finished(group_lags(node, ConsumerGroupRecord())) == {}
