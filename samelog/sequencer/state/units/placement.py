"""What commands about data groups change in the replicated state.

Invariant: a command whose preconditions do not hold changes nothing, and says why as a stable code
and a sentence; the table's version grows with every change of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from samelog.format.nouns import counted
from samelog.placement.changes import apply_change
from samelog.placement.tasks import PlacementRefused
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.tables.placement import (
    BeginAnew,
    ChangePlacement,
    DropTopics,
    MakeGroups,
    OpenNewLog,
    OpenPartition,
    PlacePartitions,
    SetReplicas,
    make_groups,
    place,
    problem_with_place,
)
from samelog.sequencer.state.tables.transfers import PassPartition
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.mirrors import why_not_wider
from samelog.sequencer.state.units.moves import pass_partition
from samelog.sequencer.state.units.resets import begin_group_anew
from samelog.sequencer.state.units.stubs import may_leave, name_moved


def _place_partitions(state: State, command: PlacePartitions) -> WhyNot:
    topic = state.topics.by_id.get(command.topic_id)
    if topic is None:
        return "UNKNOWN_TOPIC", f"no topic has the id {command.topic_id}"
    if not topic.is_placed or topic.partitions + len(command.groups) != command.partitions:
        count = counted(topic.partitions, "partition")
        return "PLACEMENT_MOVED", f"topic {topic.name!r} has {count}"
    problem = why_not_wider(state, topic)
    problem = problem or problem_with_place(state.placement, state.members.by_number, command)
    if problem is None:
        state.add_partitions(topic, len(command.groups))
        place(state.placement, command, topic.partition_numbers)
    return problem


def _drop_topics(state: State, command: DropTopics) -> WhyNot:
    state.placement.dropped = max(state.placement.dropped, command.version)
    return None


def _change(state: State, command: ChangePlacement) -> WhyNot:
    version = state.placement.version
    if command.since not in (-1, version):
        return "PLACEMENT_MOVED", f"the table of placement is at version {version}"
    refused: list[PlacementRefused] = []
    for change in command.changes:
        name_moved(state, change)
        try:
            apply_change(state.placement, change, may_leave=may_leave(state))
        except PlacementRefused as error:
            refused.append(error)
    if not refused or len(refused) < len(command.changes):
        return None  # each change stands for itself: the next plan has what was refused
    return refused[0].code, refused[0].message


def _set_replicas(state: State, command: SetReplicas) -> WhyNot:
    """Raft has accepted them already, so there is nothing to refuse."""
    _give_up_compactions(state, {each.member for each in command.replicas if each.votes})
    state.members.level = max(state.members.level, command.level)
    state.placement.version = command.version + 1
    state.placement.own = command.replicas
    return None


def _give_up_compactions(state: State, voters: set[int]) -> None:
    """Give up what other voters could decide: a replica that votes now may lack what they write."""
    for known in state.partitions.by_number.values():
        order = None if known.compacted is None else known.compacted.order
        if order is not None and voters.symmetric_difference(order.voters):
            known.compactions.give_up_order()


def _open_partition(state: State, command: OpenPartition) -> WhyNot:
    """Again, too: the settings may be others, and the topic may have more partitions. Who has not
    heard of a hard reset names partitions that are gone.
    """
    if command.since < state.placement.dropped:
        return "OVERTAKEN", "it is asked by a table that may have deleted topics in it"
    if command.number in state.transfers.left:
        return "LEFT", f"partition {command.number} went to another group"
    known = state.topics.by_id.get(command.topic_id)
    if known is not None and known.partition_numbers[0] != command.numbers[0]:
        return "OVERTAKEN", f"the log of topic {command.name!r} is another one"
    state.open_partition(command)
    return None


def _open_known_log(state: State, command: OpenPartition) -> WhyNot:
    problem = _open_partition(state, command)
    if problem is None:
        state.topics.note_log(command.topic_id)
    return problem


def _open_new_log(state: State, command: OpenNewLog) -> WhyNot:
    opening = command.opening
    is_new = opening.number not in state.partitions.by_number
    problem = _open_partition(state, opening)
    if problem is None:
        topic = state.topics.by_id[opening.topic_id]
        topic.present_log, topic.former_logs = command.log_id, list(command.former_logs)
        if is_new:
            state.epochs.by_partition[opening.number] = command.epoch_base
        state.topics.note_log(topic.topic_id)
    return problem


PLACEMENT_CHANGES: Mapping[type, Callable[[Any, Any], WhyNot]] = {
    MakeGroups: lambda state, command: make_groups(
        state.placement, state.members.by_number, command
    ),
    ChangePlacement: _change,
    PlacePartitions: _place_partitions,
    OpenPartition: _open_known_log,
    DropTopics: _drop_topics,
    OpenNewLog: _open_new_log,
    BeginAnew: begin_group_anew,
    SetReplicas: _set_replicas,
    PassPartition: pass_partition,
}
