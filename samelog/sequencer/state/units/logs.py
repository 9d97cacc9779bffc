"""What is known of a partition whose records were given up, void or archived, and of the checksums
agreed on in it.

Invariant: a checksum that may be of records that were given up later is never agreed on, and none
that was agreed on is kept: whoever has the void batches in their place would be told that it
differs. Only the group that has a partition gives up its records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from samelog.archiver.command import ArchiveCommand, apply_archive
from samelog.archiver.compaction import (
    CompactCommand,
    RewrittenCommand,
    apply_order,
    apply_rewritten,
)
from samelog.sequencer.state.command_base import Rejection, WhyNot
from samelog.sequencer.state.instructions import VoidRecordsCommand
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.keys import TellKeys, blocks_between
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.topics import elsewhere


def void_event(name: str, command: VoidRecordsCommand) -> RecordEvent:
    """What is remembered of it."""
    offsets = f"offsets {command.base_offset} to {command.next_offset - 1}"
    text = f"{name}: {offsets} are void: no node had their records"
    return RecordEvent(command.at_ms, "void", text)


def _partition_here(state: State, number: int) -> Partition | Rejection:
    """A partition that this group has."""
    partition = state.partitions.by_number.get(number)
    if partition is None:
        return Rejection("UNKNOWN_TOPIC", f"partition {number} is gone")
    problem = elsewhere(state, number)
    return partition if problem is None else Rejection(*problem)


def void_records(state: State, command: VoidRecordsCommand) -> VoidRecordsCommand | Rejection:
    """No node has these records, nor anybody else."""
    partition = _partition_here(state, command.partition)
    if isinstance(partition, Rejection):
        return partition
    if command.partition in state.mirrors.places:
        return Rejection(
            "MIRROR", "its source has the records: delete the mirror and create it again"
        )
    known = partition.given_up(command)
    if isinstance(known, str):
        return Rejection("PRECONDITION", known)
    if known is not None:
        return known
    for table in state.partition_tables.values():
        table.give_up(command)
    name = f"{state.topics.by_id[partition.topic_id].name}-{partition.index}"
    state.events.remember(void_event(name, command))
    return command


def archive_records(state: State, command: ArchiveCommand) -> ArchiveCommand | Rejection:
    """These records are archived."""
    partition = _partition_here(state, command.partition)
    if isinstance(partition, Rejection):
        return partition
    problem = apply_archive(partition, state.copy_targets, command)
    return command if problem is None else Rejection("PRECONDITION", problem)


def _tell_keys(state: State, command: TellKeys) -> WhyNot:
    keyed = state.keys.by_partition.get(command.partition)
    if keyed is None:
        return "UNKNOWN_TOPIC", f"keys of partition {command.partition} do not count once"
    if state.transfers.is_on_its_way(command.partition):
        return "ON_ITS_WAY", f"partition {command.partition} is on its way between two groups"
    voids = state.partitions.by_number[command.partition].voids
    if not any(
        command.block in blocks_between(each.base_offset, each.next_offset) for each in voids
    ):
        keyed.tell(command)
    return None


def _compact(state: State, command: CompactCommand | RewrittenCommand) -> WhyNot:
    partition = state.partitions.by_number.get(command.partition)
    if partition is None:
        return "UNKNOWN_TOPIC", f"partition {command.partition} is gone"
    if state.transfers.is_held(command.partition):
        return "ON_ITS_WAY", f"partition {command.partition} is on its way between two groups"
    if isinstance(command, CompactCommand):
        why_not = apply_order(partition, command)
    else:
        why_not = apply_rewritten(partition, command)
    return None if why_not is None else ("PRECONDITION", why_not)


LOG_CHANGES: Mapping[type, Callable[[Any, Any], WhyNot]] = {
    CompactCommand: _compact,
    RewrittenCommand: _compact,
    TellKeys: _tell_keys,
}
