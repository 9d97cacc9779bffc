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
from typing import TYPE_CHECKING

from samelog.config.authorisation import NODE_PREFIX
from samelog.placement.changes import AnyChange, PartitionMoved
from samelog.placement.values import METADATA, PlacedPartition

if TYPE_CHECKING:
    from samelog.sequencer.state.types import State


def may_leave(state: State) -> Collection[int]:
    """Partitions that can be asked to leave this group."""
    return () if state.placement.own else state.partitions.keys()


def epoch_base(state: State, number: int) -> int:
    """How far leader epochs of a partition of this group are above its terms."""
    base = state.placement.epoch_bases.get(number, 0)
    return base if state.placement.own else state.epochs.base + base


def name_moved(state: State, change: AnyChange) -> None:
    """A partition of group 0 that is open elsewhere now is named in the table."""
    if not isinstance(change, PartitionMoved):
        return
    table = state.placement
    task = table.tasks.get(change.task)
    if task is None or task.group != METADATA or task.partition is None:
        return
    known = state.partitions.get(task.partition)
    if known is None or known.number in table.partitions:
        return
    state.topics[known.topic_id].is_placed = True
    table.partitions[known.number] = PlacedPartition(
        known.number,
        known.topic_id,
        known.index,
        METADATA,
        epoch_base(state, known.number),
        state.epochs.first,
    )


def keep_stub(state: State, number: int) -> None:
    """Nothing of a partition is here any more but that it is: see above. Nodes' sessions are others
    in each group.
    """
    known = state.partitions[number]
    state.add_empty(state.topics[known.topic_id], number, known.index)
    for entry in [each for each in state.inputs.values() if each.partition == number]:
        if state.sessions[entry.session].identity.startswith(NODE_PREFIX):
            del state.inputs[entry.number]
        entry.refused = []
