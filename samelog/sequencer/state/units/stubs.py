"""Partitions that leave group 0 for a data group: what group 0 keeps of them.

While one leaves, group 0 is the source of its move (`passing`). Once it is open elsewhere the table
names it, as it names those that were made in data groups; and of those group 0 has as much as is
left here: an empty partition, and an input for each session that wrote to it, by which group 0
waits for the ends of runs.

Invariant: the table names a partition of group 0 only by the change with which its task has moved
it; until then group 0 has it (rule placement.15).
"""

from __future__ import annotations

from collections.abc import Collection

from samelog.config.authorisation import NODE_PREFIX
from samelog.placement.changes import AnyChange, PartitionMoved
from samelog.placement.values import METADATA, PlacedPartition
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.sessions import Input
from samelog.sequencer.state.types import State


def may_leave(state: State) -> Collection[int]:
    """Partitions that can be asked to leave this group."""
    return () if state.placement.own else state.partitions.by_number.keys()


def name_moved(state: State, change: AnyChange) -> None:
    """A partition of group 0 that is open elsewhere now is named in the table."""
    if not isinstance(change, PartitionMoved):
        return
    table = state.placement
    task = table.tasks.get(change.task)
    if task is None or task.group != METADATA or task.partition is None:
        return
    known = state.partitions.by_number.get(task.partition)
    if known is None or known.number in table.partitions:
        return
    state.topics.by_id[known.topic_id].is_placed = True
    table.partitions[known.number] = PlacedPartition(
        known.number,
        known.topic_id,
        known.index,
        METADATA,
        state.epochs.base_of(known.number),
        state.epochs.first,
    )


Stub = tuple[Partition, list[Input]]


def stub_of(state: State, number: int) -> Stub:
    """What group 0 keeps of a partition that leaves it. Inputs of nodes are not kept."""
    known = state.partitions.by_number[number]
    owner = state.sessions.by_name
    inputs = [
        entry
        for entry in state.sessions.of_partition(number)
        if not owner[entry.session].identity.startswith(NODE_PREFIX)
    ]
    return Partition(number, known.topic_id, known.index), inputs


def keep_stub(state: State, stub: Stub) -> None:
    """Put back what group 0 keeps of a partition that has left it."""
    known, inputs = stub
    state.add_empty(state.topics.by_id[known.topic_id], known.number, known.index)
    for entry in inputs:
        entry.refused = []
        state.sessions.inputs[entry.number] = entry
