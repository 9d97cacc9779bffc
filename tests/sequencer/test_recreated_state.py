"""A topic that is created again inherits nothing: its deletion removes all state that names its id
or the number of its partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.instructions import Merge, Range, Sequence5
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.groups import CommitOffsets, CommittedOffset
from samelog.sequencer.state.tables.sessions import OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand
from samelog.sequencer.state.tables.transactions import (
    AddToTransaction,
    CommitInTransaction,
    InitProducer,
)

NUMBER = 900_000_001
"""Of the first partition: no other number in the state is like it."""


def mentions(value: object, path: str = "state") -> Iterator[str]:
    """Where the topic's id or the number of its partition is."""
    if value in ("topic-1", NUMBER):
        yield path
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from mentions(_number(key), f"{path}[{key}]")
            yield from mentions(each, f"{path}[{key}]")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from mentions(each, f"{path}[{number}]")


def _number(key: object) -> object:
    return int(key) if isinstance(key, str) and key.isdigit() else key


def all_of(machine: StateMachine) -> Any:
    """The whole state, in values that can be walked."""
    return msgspec.to_builtins(machine.state)


USES: tuple[tuple[str, tuple[AnyCommand, ...]], ...] = (
    ("sessions", (OpenInputCommand("ewr", "topic-1", 0),)),
    (
        "records of twins and idempotent producers",
        (
            OpenInputCommand("ewr", "topic-1", 0),
            Merge(
                NUMBER,
                0,
                3,
                1000,
                False,
                [Range(1, 0, 0, 0, 10, 1, 10, 7)],
                sequences=[Sequence5(55, 0, 0, 0, 0)],
                watermarks=[("twins", 41)],
            ),
        ),
    ),
    ("offsets", (CommitOffsets([("g", [(NUMBER, CommittedOffset(7, -1, "", 1))])]),)),
    (
        "transactions",
        (
            InitProducer("x", 1000, -1, -1, 77, 0),
            AddToTransaction("x", 77, 0, [NUMBER], ["g"], 5),
            CommitInTransaction(
                "x",
                77,
                0,
                "g",
                [(NUMBER, CommittedOffset(3, -1, "", 6))],
                joins=False,
                at_ms=6,
            ),
        ),
    ),
)


@pytest.mark.parametrize(("name", "uses"), USES, ids=[name for name, _ in USES])
def test_a_deletion_takes_along_what_knows_the_topic(
    name: str, uses: tuple[AnyCommand, ...]
) -> None:
    machine = StateMachine()
    machine.state.partitions.next_number = NUMBER
    machine.apply(CreateTopicCommand("topic-1", "flights", 1, {"dedup.key": "first"}, 1))
    machine.apply(OpenRunCommand("ewr", "d1", "i", 0, "r0", "twins", 0))
    before = set(mentions(all_of(machine)))
    for command in uses:
        outcome = machine.apply(command)
        assert not isinstance(outcome, Rejection), outcome
    assert set(mentions(all_of(machine))) - before, name
    machine.apply(DeleteTopicCommand("topic-1"))
    assert list(mentions(all_of(machine))) == []
    again = machine.apply(CreateTopicCommand("topic-2", "flights", 1, {}, 2))
    assert again.partition_numbers == [NUMBER + 1]
    assert list(mentions(all_of(machine))) == []
