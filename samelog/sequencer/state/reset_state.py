"""What resets change in the replicated state.

A hard reset gives every topic's log a new id and every partition a new number, so that whatever was
said of the old ones (reports, instructions on their way, committed offsets) means nothing any more.
Inputs stay where they are: what was merged is never merged again, what was not is merged into the
new log. So does what dedup remembers, but for offsets, which were the old log's.

Invariant: leader epochs of the new logs are above all those of the old ones; a partition number is
never used twice; a reset that is proposed twice is done once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from samelog.sequencer.state.commands import RecordEvent
from samelog.sequencer.state.feeds.noting import forget_places, places_of
from samelog.sequencer.state.reset_commands import HardReset, SoftReset

if TYPE_CHECKING:
    from samelog.sequencer.state.types import State, Topic

EPOCH_STEP = 1000
"""A node that has not heard of a reset cannot have come so many terms further."""
RESETS_REMEMBERED = 64


def soft_reset(state: State, command: SoftReset) -> bool:
    """Apply a soft reset. Returns False if it was applied before."""
    return _is_news(state, command.reset_id)


def hard_reset(state: State, command: HardReset) -> bool:
    """Apply a hard reset. Returns False if it was applied before."""
    if not _is_news(state, command.reset_id):
        return False
    base = state.epochs.base + EPOCH_STEP
    state.epochs = state.epochs._replace(base=base, first=base + command.term)
    moved: dict[int, int] = {}
    places: dict[int, tuple[str, int]] = {}
    for topic in state.topics.values():
        places |= places_of(topic)
        moved |= _begin_anew(state, topic, command.reset_id)
    for entry in state.inputs.values():
        entry.partition = moved[entry.partition]
    _move_dedup(state, moved)
    forget_places(state, places)
    state.mirrors.begin_anew(moved)
    return True


def event_of(command: SoftReset | HardReset, topics: int) -> RecordEvent:
    """The event that remains of a reset."""
    if isinstance(command, SoftReset):
        return RecordEvent(command.at_ms, "soft-reset", "Raft's log was begun anew on every node")
    text = f"the logs of {topics} topics were begun anew; the old ones are set aside on every node"
    return RecordEvent(command.at_ms, "hard-reset", text)


def _is_news(state: State, reset_id: str) -> bool:
    if reset_id in state.resets:
        return False
    state.resets.append(reset_id)
    del state.resets[:-RESETS_REMEMBERED]
    return True


def _begin_anew(state: State, topic: Topic, reset_id: str) -> dict[int, int]:
    """Old number -> new number of the topic's partitions."""
    old, topic.partition_numbers = topic.partition_numbers, []
    topic.former_logs.append(topic.log_id)
    topic.present_log = log_id(topic.topic_id, reset_id)
    for number in old:
        del state.partitions[number]
        state.add_partition(topic)
    return dict(zip(old, topic.partition_numbers, strict=True))


def log_id(topic_id: str, reset_id: str) -> str:
    """The id of a topic's log after a reset: 32 hexadecimal digits, the same on every node."""
    named = f"{topic_id} {reset_id}".encode()
    return hashlib.blake2b(named, digest_size=16).hexdigest()


def _move_dedup(state: State, moved: Mapping[int, int]) -> None:
    for producer_id, batches in state.producers.items():
        state.producers[producer_id] = {
            moved[number]: [msgspec.structs.replace(batch, offset=-1) for batch in remembered]
            for number, remembered in batches.items()
        }
    for dedup_id, marks in state.watermarks.items():
        state.watermarks[dedup_id] = {moved[number]: mark for number, mark in marks.items()}


RESETS: Mapping[type, Callable[[Any, Any], bool]] = {SoftReset: soft_reset, HardReset: hard_reset}
