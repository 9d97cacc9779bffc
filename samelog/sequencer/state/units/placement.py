"""What commands about data groups change in the replicated state.

Invariant: a command whose preconditions do not hold changes nothing, and says why as a stable code
and a sentence; the table's version grows with every change of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from samelog.format.nouns import counted
from samelog.placement.changes import PlaceGroups, apply_change, put_partitions
from samelog.placement.tasks import PlacementRefused
from samelog.placement.values import REPLICAS_MOST, NewGroup, PlacedPartition, Placement
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.tables.placement import (
    BeginAnew,
    ChangePlacement,
    MakeGroups,
    OpenNewLog,
    OpenPartition,
    PlacePartitions,
    PlaceTopic,
    SetReplicas,
)
from samelog.sequencer.state.tables.transfers import PassPartition
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.moves import pass_partition
from samelog.sequencer.state.units.resets import begin_group_anew
from samelog.sequencer.state.units.stubs import may_leave, name_moved


def _make_groups(state: State, command: MakeGroups) -> WhyNot:
    problem = _problem_with_groups(state, command.since, command.groups)
    if problem is None:
        first = state.placement.next_group
        apply_change(state.placement, PlaceGroups(first, tuple(command.groups)))
    return problem


def _problem_with_groups(state: State, since: int, groups: Sequence[NewGroup]) -> WhyNot:
    version = state.placement.version
    if since != version:
        return "PLACEMENT_MOVED", f"the table of placement is at version {version}"
    problems = (_problem_with(state, wanted) for wanted in groups)
    problem = next(filter(None, problems), None)
    return None if problem is None else ("INVALID_GROUP", problem)


def problem_with_place(state: State, command: PlaceTopic | PlacePartitions) -> WhyNot:
    """Why new partitions cannot be where they are to be; None if they can."""
    if command.new_groups:
        problem = _problem_with_groups(state, command.since, command.new_groups)
        if problem is not None:
            return problem
    table = state.placement
    made = range(table.next_group, table.next_group + len(command.new_groups))
    unknown = sorted(each for each in {*command.groups} - table.groups.keys() if each not in made)
    if unknown and command.since != table.version:
        return "PLACEMENT_MOVED", f"groups {unknown} are gone"
    return ("INVALID_GROUP", f"there are no groups {unknown}") if unknown else None


def place(table: Placement, command: PlaceTopic | PlacePartitions, numbers: Sequence[int]) -> None:
    """A topic has these partitions, the newest of which are to be in these groups."""
    apply_change(table, PlaceGroups(table.next_group, tuple(command.new_groups)))
    first, topic_id = len(numbers) - len(command.groups), command.topic_id
    places = zip(numbers[first:], count(first), command.groups, strict=False)
    put_partitions(table, [PlacedPartition(n, topic_id, at, group) for n, at, group in places])


def _place_partitions(state: State, command: PlacePartitions) -> WhyNot:
    topic = state.topics.by_id.get(command.topic_id)
    if topic is None:
        return "UNKNOWN_TOPIC", f"no topic has the id {command.topic_id}"
    if not topic.is_placed or topic.partitions + len(command.groups) != command.partitions:
        count = counted(topic.partitions, "partition")
        return "PLACEMENT_MOVED", f"topic {topic.name!r} has {count}"
    problem = problem_with_place(state, command)
    if problem is None:
        state.add_partitions(topic, len(command.groups))
        place(state.placement, command, topic.partition_numbers)
    return problem


def forget(table: Placement, partitions: Iterable[int]) -> None:
    """A topic is deleted: its groups are to let go of it."""
    numbers = set(partitions)
    gone = [number for number in numbers if table.partitions.pop(number, None)]
    gone += [number for number in numbers if table.moves.pop(number, None)]
    if gone:
        table.version += 1


def _problem_with(state: State, wanted: NewGroup) -> str | None:
    if not 0 < len(wanted.members) <= REPLICAS_MOST:
        return f"a group has 1 to {REPLICAS_MOST} replicas, not {len(wanted.members)}"
    if len(set(wanted.members)) < len(wanted.members):
        return f"a member has one replica of a group, at most: {wanted.members}"
    strangers = [number for number in wanted.members if number not in state.members.by_number]
    if strangers:
        return f"no members have the numbers {strangers}"
    if wanted.preferred not in wanted.members:
        return f"member {wanted.preferred} would lead, and has no replica"
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
    state.members.level = max(state.members.level, command.level)
    state.placement.version = command.version + 1
    state.placement.own = command.replicas
    return None


def _open_partition(state: State, command: OpenPartition) -> WhyNot:
    """Again, too: the settings may be others, and the topic may have more partitions. Who has not
    heard of a hard reset names partitions that are gone.
    """
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
    MakeGroups: _make_groups,
    ChangePlacement: _change,
    PlacePartitions: _place_partitions,
    OpenPartition: _open_known_log,
    OpenNewLog: _open_new_log,
    BeginAnew: begin_group_anew,
    SetReplicas: _set_replicas,
    PassPartition: pass_partition,
}
