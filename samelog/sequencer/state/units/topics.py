"""New topics, in group 0 or with their partitions in data groups; and what only group 0 does.

Invariant: a name belongs to one living topic; what is in a data group is changed by that alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from samelog.placement.cluster_ids import root_of
from samelog.placement.colocation import keep_together, let_go
from samelog.placement.values import METADATA
from samelog.sequencer.state.command_base import Rejection, WhyNot
from samelog.sequencer.state.tables.feeds import RESERVED_NAMES
from samelog.sequencer.state.tables.keys import problem_with_keys
from samelog.sequencer.state.tables.mirrors import Mirror
from samelog.sequencer.state.tables.placement import PlaceTopic, forget, place, problem_with_place
from samelog.sequencer.state.tables.topics import (
    AddPartitions,
    AlterTopicCommand,
    CreateTopicCommand,
    DeleteTopicCommand,
    Topic,
)
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.feeds import forget_places, places_of
from samelog.sequencer.state.units.mirrors import (
    problem_with_settings,
    promote_ended,
    why_not_wider,
)
from samelog.sequencer.state.units.schemas import why_not_enforced
from samelog.sequencer.state.units.views import why_not_dropped
from samelog.typed.enforcing import is_judged


def problem_with_new(state: State, command: CreateTopicCommand | PlaceTopic) -> WhyNot:
    """Why there cannot be such a topic; None if there can."""
    if command.name in state.topics.by_name or state.views.named(command.name) is not None:
        return "TOPIC_EXISTS", f"topic {command.name!r} exists already"
    if command.name in RESERVED_NAMES:
        return "RESERVED_TOPIC", f"topic {command.name!r} is made of the cluster's state"
    if command.partitions < 1:
        return "INVALID_TOPIC", f"topic {command.name!r} would have no partitions"
    if (why := problem_with_keys(None, command.settings)) is not None:
        return "INVALID_TOPIC", why
    source = command.source
    if source is not None and root_of(state.members.cluster_id) in source.origins:
        return "MIRROR", f"the records of {source.topic!r} come from this cluster"
    return _problem_with_home(state, command)


def _problem_with_home(state: State, command: CreateTopicCommand | PlaceTopic) -> WhyNot:
    """Why a topic cannot be in these groups."""
    problem = _problem_with_other(state, command)
    if problem is not None or not isinstance(command, PlaceTopic):
        return problem
    return problem_with_place(state.placement, state.members.by_number, command)


def _problem_with_other(state: State, command: CreateTopicCommand | PlaceTopic) -> WhyNot:
    """Why a topic cannot share the group of another one as it was planned."""
    if not command.beside:
        return None
    other = state.topics.by_id.get(command.beside)
    if other is None:
        return "UNKNOWN_TOPIC", f"no topic has the id {command.beside}"
    table = state.placement
    there = {table.group_of(each) for each in other.partition_numbers}
    is_moving = any(each in table.moves for each in other.partition_numbers)
    planned = set(command.groups) if isinstance(command, PlaceTopic) else {METADATA}
    if there != planned or is_moving:
        return "PLACEMENT_MOVED", f"topic {other.name!r} is elsewhere"
    return None


def create_topic(state: State, command: CreateTopicCommand | PlaceTopic) -> Topic | Rejection:
    """Create a topic, unless it is there."""
    known = state.topics.by_id.get(command.topic_id)
    if known is not None:  # proposed twice, because its fate was not known
        return known
    problem = problem_with_new(state, command)
    if problem is not None:
        return Rejection(*problem)
    topic = Topic(command.topic_id, command.name, command.settings, command.at_ms, [])
    state.add_partitions(topic, command.partitions)
    state.topics.put(topic)
    state.follow_enforcing(topic)
    if isinstance(command, PlaceTopic):
        topic.is_placed = True
        place(state.placement, command, topic.partition_numbers)
    if command.beside:
        keep_together(state.placement, topic.topic_id, command.beside)
    if command.source is not None:
        numbers = () if topic.is_placed else topic.partition_numbers
        state.mirrors.begin(topic.topic_id, Mirror(command.source, command.at_ms), numbers)
    return topic


def delete_topic(state: State, command: DeleteTopicCommand) -> Topic | Rejection:
    """Delete a topic, with all that is known of its partitions."""
    problem = why_not_dropped(state, command.topic_id)
    if problem is not None:
        return Rejection(*problem)
    topic = state.topics.take(command.topic_id)
    if topic is None:
        return Rejection("UNKNOWN_TOPIC", f"no topic has the id {command.topic_id}")
    gone = set(topic.partition_numbers)
    state.schemas.forget(topic.schemas)
    state.schemas.enforced.pop(topic.topic_id, None)
    state.drop_partitions(gone)
    state.transfers.forget(gone)
    forget(state.placement, topic.topic_id, topic.name, topic.partition_numbers)
    let_go(state.placement, [topic.topic_id])
    state.mirrors.forget(gone, topic.topic_id)
    promote_ended(state)
    forget_places(state, places_of(topic))
    state.feeds.moved()
    return topic


def elsewhere(state: State, number: int) -> WhyNot:
    """Why a group changes nothing of a partition that is in another one, or on its way there."""
    group = state.placement.group_of(number)
    if group:
        return "ELSEWHERE", f"partition {number} is in data group {group}"
    return on_its_way(state, number)


def on_its_way(state: State, number: int) -> WhyNot:
    """Why a data group opens nothing in a partition."""
    if not state.transfers.is_on_its_way(number):
        return None
    return "ON_ITS_WAY", f"partition {number} is on its way between two groups"


def _alter_topic(state: State, command: AlterTopicCommand) -> WhyNot:
    topic = state.topics.by_id.get(command.topic_id)
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


def _add_partitions(state: State, command: AddPartitions) -> WhyNot:
    topic = state.topics.by_id.get(command.topic_id)
    if topic is None:
        return "UNKNOWN_TOPIC", f"no topic has the id {command.topic_id}"
    if command.partitions < topic.partitions:
        return "INVALID_PARTITIONS", f"topic {topic.name!r} has {topic.partitions} already"
    if topic.is_placed:
        return "INVALID_PARTITIONS", f"topic {topic.name!r} is in data groups: say in which"
    if (problem := why_not_wider(state, topic)) is not None:
        return problem
    before, mirror = topic.partitions, state.mirrors.of_topic(topic.topic_id)
    state.add_partitions(topic, command.partitions - before)
    if mirror is not None:
        state.mirrors.begin(topic.topic_id, mirror, topic.partition_numbers[before:])
    return None


TOPIC_CHANGES: Mapping[type, Callable[[Any, Any], WhyNot]] = {
    AlterTopicCommand: _alter_topic,
    AddPartitions: _add_partitions,
}
