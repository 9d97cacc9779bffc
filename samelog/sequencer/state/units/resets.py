"""What resets change in the replicated state.

A hard reset gives every topic's log a new id and every partition a new number, so that whatever was
said of the old ones (reports, instructions on their way, committed offsets) means nothing any more.
Inputs stay where they are: what was merged is never merged again, what was not is merged into the
new log. So does what dedup remembers, but for offsets, which were the old log's.

Of what is in data groups, group 0 decides the new ids and numbers. Each group restarts its
logs by an entry of its own; until then, no log of it is found under the numbers that group 0 names.

Invariant: leader epochs of the new logs are above all those of the old ones; a partition number is
never used twice; a reset that is proposed twice is done once.
"""

from __future__ import annotations

import hashlib

from samelog.sequencer.state.command_base import Rejection, WhyNot
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.placement import BeginAnew, NewLog
from samelog.sequencer.state.tables.resets import HardReset, ResetCommand, SoftReset
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.feeds import forget_places, places_of
from samelog.sequencer.state.units.views import begin_views_anew

EPOCH_STEP = 1000
"""A node that has not heard of a reset cannot have come so many terms further."""


def reset(state: State, command: ResetCommand) -> ResetCommand | Rejection:
    """Apply a reset, once."""
    if command.reset_id in state.resets.ids:
        return Rejection("RESET_DONE", f"reset {command.reset_id} is done already")
    if isinstance(command, HardReset):
        if (why := why_no_hard_reset(state)) is not None:
            return Rejection(*why)
        _restart_logs(state, command)
    state.resets.note(command.reset_id)
    state.reindex()
    state.events.remember(event_of(command, len(state.topics.by_id)))
    return command


def _restart_logs(state: State, command: HardReset) -> None:
    state.epochs.base += EPOCH_STEP
    state.epochs.first = state.epochs.base + command.term
    moved: dict[int, int] = {}
    places: dict[int, tuple[str, int]] = {}
    for topic in state.topics.by_id.values():
        places |= places_of(topic)
        moved |= _begin_anew(state, topic, command.reset_id)
    state.restart_logs(moved)
    forget_places(state, places)
    if state.placement.partitions:
        state.placement.begin_anew(moved, command.reset_id, EPOCH_STEP)


def why_no_hard_reset(state: State) -> WhyNot:
    """What of data groups is in the way of a hard reset; None: nothing."""
    table = state.placement
    if state.mirrors.promotions:
        return "PROMOTING", "mirrors are being promoted: wait until that is over"
    if not table.partitions:
        return None
    moves = [str(each.number) for each in table.tasks.values() if each.partition is not None]
    if moves or table.moves:
        text = f"partitions move (tasks {', '.join(moves) or 'to come'}): wait, or cancel that"
        return "MOVING", text
    if state.stages.units:
        return "UNITS", "a staged batch is being published: try again in a moment"
    return None


def begin_group_anew(state: State, command: BeginAnew) -> WhyNot:
    """A hard reset, in a data group: of the topics that are older here."""
    logs = [each for each in command.logs if _is_older(state, each)]
    if not state.resets.note(command.reset_id) and not logs:
        return "RESET_DONE", f"reset {command.reset_id} is done already"
    state.epochs.first = max(state.epochs.first, command.term)
    moved: dict[int, int] = {}
    bases: dict[int, int] = {}
    for each in logs:
        moved |= _renumber(state, state.topics.by_id[each.topic_id], each)
        bases |= zip(each.numbers, each.epoch_bases, strict=True)
    state.restart_logs(moved)
    state.epochs.by_partition.update((number, bases[number]) for number in moved.values())
    state.reindex()
    state.events.remember(event_of(command, len(command.logs)))
    return None


def _is_older(state: State, log: NewLog) -> bool:
    topic = state.topics.by_id.get(log.topic_id)
    return topic is not None and topic.partition_numbers[0] < log.numbers[0]


def _renumber(state: State, topic: Topic, log: NewLog) -> dict[int, int]:
    """Old number -> new number of the partitions that are here."""
    here = [each for each in state.partitions.by_number.values() if each.topic_id == topic.topic_id]
    topic.former_logs.append(topic.log_id)
    topic.present_log, topic.partition_numbers = log.log_id, list(log.numbers)
    return {old.number: log.numbers[old.index] for old in here}


def event_of(command: SoftReset | HardReset | BeginAnew, topics: int) -> RecordEvent:
    """The event that remains of a reset."""
    if isinstance(command, SoftReset):
        return RecordEvent(command.at_ms, "soft-reset", "Raft's log was restarted on every node")
    text = f"the logs of {topics} topics were restarted; the old ones are set aside on every node"
    return RecordEvent(command.at_ms, "hard-reset", text)


def _begin_anew(state: State, topic: Topic, reset_id: str) -> dict[int, int]:
    """Old number -> new number of the topic's partitions."""
    old, topic.partition_numbers = topic.partition_numbers, []
    topic.former_logs.append(topic.log_id)
    topic.present_log = log_id(topic.topic_id, reset_id)
    begin_views_anew(state, topic)
    return dict(zip(old, state.number_partitions(topic, len(old)), strict=True))


def log_id(topic_id: str, reset_id: str) -> str:
    """The id of a topic's log after a reset: 32 hexadecimal digits, the same on every node."""
    named = f"{topic_id} {reset_id}".encode()
    return hashlib.blake2b(named, digest_size=16).hexdigest()
