"""What commands about settings change in the replicated state: of members, of topics, and of what
is set over the Kafka protocol.

Invariant: a command whose preconditions do not hold changes nothing, and says why as a stable code
and a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from samelog.archiver.compaction import (
    CompactCommand,
    RewrittenCommand,
    apply_order,
    apply_rewritten,
)
from samelog.sequencer.state.access_commands import AccessCommand
from samelog.sequencer.state.access_state import ACCESS_COMMANDS, Problem, change_access
from samelog.sequencer.state.commands import (
    LetIn,
    RaiseLevel,
    RecordEvent,
    SetMaintenanceCommand,
    SetMembers,
)
from samelog.sequencer.state.judging.changes import JUDGING_CHANGES, why_not_enforced
from samelog.sequencer.state.key_commands import TellKeys
from samelog.sequencer.state.mirrors.changes import MIRROR_CHANGES, problem_with_settings
from samelog.sequencer.state.schema_state import SCHEMA_CHANGES
from samelog.sequencer.state.setting_commands import AddPartitions, AlterTopicCommand, SetListeners
from samelog.sequencer.state.sites.state import SITE_CHANGES
from samelog.sequencer.state.tables.keys import blocks_between, problem_with_keys
from samelog.sequencer.state.views.changes import VIEW_CHANGES
from samelog.typed.enforcing import is_judged

if TYPE_CHECKING:
    from samelog.sequencer.state.types import State


def _set_members(state: State, command: SetMembers) -> Problem:
    """Raft has accepted them already, so there is nothing to refuse."""
    state.name_cluster(command.cluster_id)
    state.members = {member.number: member for member in command.members}
    state.members_version += 1
    state.next_member = max([state.next_member, *(number + 1 for number in state.members)])
    state.started = {n: life for n, life in state.started.items() if n in state.members}
    state.listeners = {n: there for n, there in state.listeners.items() if n in state.members}
    state.placement.keep(state.members)
    names = {member.name for member in command.members}
    state.maintenance = {n: until for n, until in state.maintenance.items() if n in names}
    return None


def _let_in(state: State, command: LetIn) -> Problem:
    state.let_in(command.number, command.incarnation)
    return None


def _record_event(state: State, command: RecordEvent) -> Problem:
    state.remember(command)
    return None


def _set_maintenance(state: State, command: SetMaintenanceCommand) -> Problem:
    if command.node not in {member.name for member in state.members.values()}:
        return "UNKNOWN_NODE", f"no node is called {command.node!r}"
    if command.until_ms:
        state.maintenance[command.node] = command.until_ms
    else:
        state.maintenance.pop(command.node, None)
    return None


def _raise_level(state: State, command: RaiseLevel) -> Problem:
    """Learners count too: they apply what voters do."""
    if state.level != command.since or command.level <= command.since:
        return "LEVEL_MOVED", f"the feature level is {state.level}"
    older = [
        member.name
        for member in state.members.values()
        if member.number not in state.started or state.started[member.number].level < command.level
    ]
    if older or not state.members:
        return "LEVEL_UNSUPPORTED", f"not known to support level {command.level}: {older}"
    state.level = command.level
    if command.since:
        text = f"the cluster's feature level was raised from {command.since} to {command.level}"
        state.remember(RecordEvent(command.at_ms, "level-raised", text))
    return None


def _set_listeners(state: State, command: SetListeners) -> Problem:
    if state.members and command.node not in state.members:
        return "UNKNOWN_NODE", f"no node has the number {command.node}"
    state.listeners[command.node] = command.listeners
    return None


def _alter_topic(state: State, command: AlterTopicCommand) -> Problem:
    topic = state.topics.get(command.topic_id)
    if topic is None:
        return "UNKNOWN_TOPIC", f"no topic has the id {command.topic_id}"
    problem = problem_with_settings(state, command.topic_id, command.settings)
    if problem is not None:
        return problem
    settings = topic.settings | command.settings
    for key in command.unset:
        settings.pop(key, None)
    if (why := problem_with_keys(topic.settings, settings)) is not None:
        return "INVALID_CONFIG", why
    if is_judged(settings) and (why := why_not_enforced(state, topic)) is not None:
        return "INVALID_CONFIG", why
    topic.settings = settings
    state.follow_enforcing(topic)
    return None


def _tell_keys(state: State, command: TellKeys) -> Problem:
    keyed = state.keys.by_partition.get(command.partition)
    if keyed is None:
        return "UNKNOWN_TOPIC", f"keys of partition {command.partition} do not count once"
    voids = state.partitions.by_number[command.partition].voids
    if not any(
        command.block in blocks_between(each.base_offset, each.next_offset) for each in voids
    ):
        keyed.tell(command)
    return None


def _add_partitions(state: State, command: AddPartitions) -> Problem:
    topic = state.topics.get(command.topic_id)
    if topic is None:
        return "UNKNOWN_TOPIC", f"no topic has the id {command.topic_id}"
    if command.partitions < topic.partitions:
        return "INVALID_PARTITIONS", f"topic {topic.name!r} has {topic.partitions} already"
    if topic.is_placed:
        return "INVALID_PARTITIONS", f"topic {topic.name!r} is in data groups: say in which"
    state.add_partitions(topic, command.partitions - topic.partitions)
    state.mirrors.follow(topic.topic_id, topic.partition_numbers)
    return None


def _compact(state: State, command: CompactCommand | RewrittenCommand) -> Problem:
    partition = state.partitions.by_number.get(command.partition)
    if partition is None:
        return "UNKNOWN_TOPIC", f"partition {command.partition} is gone"
    if state.transfers.is_on_its_way(command.partition):
        return "ON_ITS_WAY", f"partition {command.partition} is on its way between two groups"
    if isinstance(command, CompactCommand):
        why_not = apply_order(partition, command)
    else:
        why_not = apply_rewritten(partition, command)
    return None if why_not is None else ("PRECONDITION", why_not)


def _change_access(state: State, command: AccessCommand) -> Problem:
    return change_access(state.access, command)


CHANGES: Mapping[type, Callable[[Any, Any], Problem]] = {
    SetMembers: _set_members,
    LetIn: _let_in,
    RecordEvent: _record_event,
    SetMaintenanceCommand: _set_maintenance,
    RaiseLevel: _raise_level,
    SetListeners: _set_listeners,
    AlterTopicCommand: _alter_topic,
    AddPartitions: _add_partitions,
    **dict.fromkeys(ACCESS_COMMANDS, _change_access),
    **SCHEMA_CHANGES,
    **JUDGING_CHANGES,
    **MIRROR_CHANGES,
    **SITE_CHANGES,
    **VIEW_CHANGES,
    CompactCommand: _compact,
    RewrittenCommand: _compact,
    TellKeys: _tell_keys,
}
