"""Committed offsets, once a data group went on alone: none is behind the end of its log.

Group 0 may have more than the replica that went on: a consumer group read records that are lost,
and committed an offset behind them. It would pass over as many of those that come.

Invariant (308): when group 0 learns that a data group goes on, no group's position in its
partitions, nor one that a transaction will commit, is behind where their logs ended.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

from msgspec.structs import replace

from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.places import base_number, place_of
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.groups import CommittedOffset
from samelog.sequencer.state.tables.placement import LowerOffsets
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.feeds import note_groups

EVENT, LOST = "offsets-lowered", "majority-lost"

TEXT_MOST = 1000


def lower_offsets(state: State, command: LowerOffsets) -> LowerOffsets | Rejection:
    """Until group 0 knows that the group went on alone."""
    if not _is_owed(state, command):
        return Rejection("OVERTAKEN", f"group {command.group} has confirmed that it goes on")
    events, ends = recovery_events(state, command), dict(command.ends)
    moved = list(_ahead(state, ends))
    for name, number, _, end in moved:
        _lower(state.groups.by_id[name].offsets, number, end)
    _lower_undecided(state, ends)
    for event in events:
        state.events.remember(event)
    if moved:
        note_groups(state, [(name, number) for name, number, _, _ in moved])
        state.feeds.moved()
    return command


def recovery_events(state: State, command: LowerOffsets) -> list[RecordEvent]:
    """Return the events that the command will add: the recovery of the group from one replica, and
    the offsets that it lowered, if any.
    """
    if not _is_owed(state, command):
        return []
    ends = ", ".join(f"{_name(state, number)} at {end}" for number, end in command.ends)
    text = (
        f"group {command.group} went on with one replica alone. Records that others acknowledged "
        f"after that may be lost. Partitions: {ends or 'none'}"
    )
    is_known = any(
        (each.kind, each.text) == (LOST, text[:TEXT_MOST]) for each in state.events.remembered
    )
    lost = [] if is_known else [RecordEvent(command.at_ms, LOST, text[:TEXT_MOST])]
    found = [
        f"{name} in {_name(state, number)} from {offset} to {end}"
        for name, number, offset, end in _ahead(state, dict(command.ends))
    ]
    if not found:
        return lost
    text = f"group {command.group} went on alone, behind what was committed of it. Lowered: "
    return [*lost, RecordEvent(command.at_ms, EVENT, (text + ", ".join(found))[:TEXT_MOST])]


def _is_owed(state: State, command: LowerOffsets) -> bool:
    group = state.placement.groups.get(command.group)
    return group is not None and group.is_recovering and group.recovered == command.recovered


def _ahead(state: State, ends: dict[int, int]) -> Iterator[tuple[str, int, int, int]]:
    """(group, partition, offset, end) of what is behind the ends: in views of them, too."""
    for name, group in sorted(state.groups.by_id.items()):
        for number, known in sorted(group.offsets.items()):
            end = ends.get(base_number(state, number))
            if end is not None and known.offset > end:
                yield name, number, known.offset, end


def _name(state: State, number: int) -> str:
    place = place_of(state, number)
    return f"partition {number}" if place is None else f"{place[0].name}-{place[1]}"


def _lower(offsets: MutableMapping[int, CommittedOffset], number: int, end: int) -> None:
    """The epoch that the consumer named was of a record that is lost."""
    offsets[number] = replace(offsets[number], offset=end, leader_epoch=-1)


def _lower_undecided(state: State, ends: dict[int, int]) -> None:
    """What transactions commit once they are decided."""
    for transaction in state.transactions.by_id.values():
        for offsets in transaction.groups.values():
            for number, known in [*offsets.items()]:
                end = ends.get(base_number(state, number))
                if end is not None and known.offset > end:
                    _lower(offsets, number, end)
