"""The log start of a partition as replicated state."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.archiver.command import ArchiveCommand, ArchivedSegment
from samelog.sequencer.levels import OtherVersion
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands, encode_commands
from samelog.sequencer.state.instructions import Merge
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.sequencer.state.types import STATE_VERSION


def make_machine(*, rolls: int = 3) -> StateMachine:
    """A partition of segments of ten records, rolled at 100, 200, …"""
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t1", "flights", 1, {}, 1))
    for number in range(rolls + 1):
        part = Merge(1, 10 * number, 1, 100 * number, number > 0, [])
        machine.apply(part)
        machine.state.partitions.by_number[1].next_offset = 10 * (number + 1)
    return machine


def files(first: int, behind: int) -> list[ArchivedSegment]:
    """The segments of these offsets."""
    return [ArchivedSegment(at, at + 10, 5, 1, 2, 3, b"s" * 32) for at in range(first, behind, 10)]


def partition(machine: StateMachine) -> Partition:
    return machine.state.partitions.by_number[1]


def test_the_start_and_the_time_of_rolls_survive_encoding() -> None:
    machine = make_machine()
    command = ArchiveCommand(1, 15, 10, 77, 5, "time", files(0, 10))
    assert decode_commands(encode_commands([command])) == [command]
    assert machine.apply(command) == command
    found = partition(StateMachine.decode(machine.encode()))
    assert (found.log_start, found.start_segment, found.start_checksum) == (15, 10, 77)
    assert found.rolls == ((20, 200), (30, 300))


@pytest.mark.parametrize(
    ("offset", "segment", "named"),
    [
        (41, 30, files(0, 30)),  # more than is planned
        (15, 20, files(0, 20)),  # the first segment kept does not hold it
        (-1, -1, []),
        (20, 20, []),  # files that are not named
        (20, 20, files(0, 10)),
        (20, 20, files(10, 20)),
        (20, 20, files(0, 30)),
        (20, 10, files(0, 20)),
        (20, 20, [*files(0, 10), *files(0, 20)]),
    ],
)
def test_what_is_not_planned_or_named_is_not_archived(
    offset: int, segment: int, named: list[ArchivedSegment]
) -> None:
    machine = make_machine()
    before = machine.encode()
    outcome = machine.apply(ArchiveCommand(1, offset, segment, 0, 0, "", named))
    assert isinstance(outcome, Rejection)
    assert machine.encode() == before


def test_a_partition_that_is_gone_is_said() -> None:
    outcome = make_machine().apply(ArchiveCommand(9, 0, 0, 0, 0, ""))
    assert isinstance(outcome, Rejection)
    assert outcome.code == "UNKNOWN_TOPIC"


@given(st.lists(st.tuples(st.integers(0, 45), st.integers(0, 4)), max_size=8))
def test_the_start_never_falls_and_its_segment_holds_it(wanted: list[tuple[int, int]]) -> None:
    machine = make_machine()
    found = partition(machine)
    for offset, number in wanted:
        before = found.log_start, found.start_segment
        named = files(found.start_segment, 10 * number)
        machine.apply(ArchiveCommand(1, offset, 10 * number, number, 0, "", named))
        assert (found.log_start, found.start_segment) >= before
        assert found.start_segment <= found.log_start <= found.next_offset
        assert found.start_checksum == found.start_segment // 10
        assert [base for base, _ in found.rolls] == [
            base for base in (10, 20, 30) if base > found.start_segment
        ]


def test_a_state_of_another_version_is_refused() -> None:
    tree = msgspec.msgpack.decode(make_machine(rolls=0).encode())
    for version in (STATE_VERSION - 1, STATE_VERSION + 1):
        tree["version"] = version
        with pytest.raises(OtherVersion, match=f"version {version}, this program reads"):
            StateMachine.decode(msgspec.msgpack.encode(tree))
