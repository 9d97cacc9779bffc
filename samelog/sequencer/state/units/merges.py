"""Merge instructions: what a group learns of the ranges that it appends to a partition.

Invariant: an instruction is applied only where its partition ends and its ranges begin; one that is
rejected changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from samelog.format.positions import SessionPosition
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import NO_EXTRAS, Merge, MergeExtras
from samelog.sequencer.state.tables.partitions import GONE, Partition
from samelog.sequencer.state.tables.sessions import follows
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.mirrors import take_mirrored
from samelog.sequencer.state.units.schemas import why_unchecked
from samelog.sequencer.state.units.transactions import end_in_log


def merge(state: State, command: Merge) -> Merge | Rejection:
    """Apply an instruction."""
    partition = state.partitions.by_number.get(command.partition, GONE)
    if partition.next_offset != command.base_offset:
        return _not_next(partition, command)
    extras = command.extras or NO_EXTRAS
    if (extras.mirrored is not None) is not (command.partition in state.mirrors.places):
        return Rejection("MIRROR", f"partition {command.partition} is one of a mirror, or none")
    if state.schemas.enforced and (why := why_unchecked(state, partition, command)):
        return Rejection("UNCHECKED", why)
    places = places_after(state, command, {})
    if places is None:
        return Rejection("PRECONDITION", f"positions of partition {command.partition}")
    if extras is not NO_EXTRAS and (reason := _apply_extras(state, command, extras)):
        return Rejection("PRECONDITION", reason)
    for number, place in places.items():
        entry = state.sessions.inputs[number]
        entry.run, entry.roll, entry.byte = place
    _advance(state, partition, command)
    return command


def _not_next(partition: Partition, command: Merge) -> Rejection:
    """An instruction does not go on where its partition ends."""
    if partition is GONE:
        return Rejection("UNKNOWN_TOPIC", f"partition {command.partition} is gone")
    return Rejection("PRECONDITION", f"base offset {command.base_offset}")


def _apply_extras(state: State, command: Merge, extras: MergeExtras) -> str | None:
    """Apply what a plain instruction does not have; return why it cannot be applied, if so."""
    if extras.mirrored is not None:
        take_mirrored(state, command, extras.mirrored)
        return None
    if extras.begins or extras.ends:
        reason = state.open_transactions.problem_with(command.partition, extras)
        reason = reason or state.mirrors.problem_with_ends(command.partition, extras.ends)
        if reason is not None:
            return reason
        end_in_log(state, command, extras)
        for producer_id in state.mirrors.settle(command.partition, extras.ends):
            # they say nothing of producers of this cluster
            state.open_transactions.by_partition[command.partition].ended.pop(producer_id, None)
    state.sessions.note_refused(extras.refused)
    return None


def places_after(
    state: State, command: Merge, before: Mapping[int, SessionPosition], *, staged: bool = False
) -> dict[int, SessionPosition] | None:
    """Where each input stands after the instruction; None if a range starts elsewhere, or its run
    is closed or, unless `staged`, held, or the partition is on its way to another group. `before`:
    where inputs stand that will have moved by then.
    """
    number, transfers = command.partition, state.transfers
    passes = transfers.passing is not None and transfers.is_on_its_way(number)
    if passes or number in state.placement.partitions:
        return None
    places = dict(before)
    for part in command.ranges:
        entry = state.sessions.inputs.get(part.input)
        if entry is None or entry.partition != number:
            return None
        place = places.get(part.input, entry)
        if place is entry and not state.sessions.takes(entry.session, staged=staged):
            return None
        if not follows(place, part):
            return None
        places[part.input] = SessionPosition(part.run, part.roll, part.stop)
    return places


def _advance(state: State, partition: Partition, command: Merge) -> None:
    if command.roll and partition.next_offset > 0:
        partition.rolls = (*partition.rolls, (command.base_offset, command.append_ms))
    if command.roll or partition.next_offset == 0:
        partition.segment_bytes = 0
        partition.segment_started_ms = command.append_ms
    size, partition.next_offset = command.extent
    partition.segment_bytes += size
    partition.append_ms = max(partition.append_ms, command.append_ms)
    if (
        state.keys.by_partition
        and (keyed := state.keys.by_partition.get(partition.number)) is not None
    ):
        settings = state.topics.by_id[partition.topic_id].settings
        keyed.merged(command.base_offset, command.next_offset, command.append_ms, settings)
    if command.sequences or command.watermarks or command.unwrapped:
        _learn(state, command)


def _learn(state: State, command: Merge) -> None:
    """Take over what dedup learns from an instruction. One for a mirror teaches it nothing, before
    the mirror is promoted.
    """
    if command.extras is not None and command.extras.mirrored is not None:
        return
    number = command.partition
    state.producers.learn(number, command.sequences, command.append_ms)
    state.watermarks.learn(number, command.watermarks)
    for each, last_id in command.unwrapped:
        state.sessions.inputs[each].last_id = last_id
