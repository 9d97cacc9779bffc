"""What commands about mirrors change in the replicated state, and who may not write to one.

Invariant: nothing is ever added to a mirror but by a mirrored `Merge` that begins at its next
offset, or a `MirrorGap` there; neither does anything to any other topic (docs/mirror.md, M4, M7). A
position of a group is never ahead of its mirror (M14).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from samelog.archiver.command import ArchiveCommand, ArchivedSegment
from samelog.archiver.policy import CLEANUP_POLICY, is_compacted
from samelog.format.names import is_mirror_session
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.instructions import Merge, Mirrored, VoidRecordsCommand
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.groups import CommittedOffset, ConsumerGroupRecord
from samelog.sequencer.state.tables.mirrors import FollowSource, MirrorGap, PromoteMirrors
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.feeds import note_groups

MIRROR = "MIRROR"
"""The code of what is refused because a topic is a mirror, or is none."""


def why_only_source(state: State, topic: Topic) -> str | None:
    """Why nobody may write to a topic, if it is a mirror."""
    known = state.mirrors.of_topic(topic.topic_id)
    if known is None:
        return None
    source = known.source
    return (
        f"topic {topic.name!r} is a mirror of {source.topic!r} of cluster {source.cluster_id}: "
        "nobody else writes to it"
    )


def why_no_mirror_input(state: State, session: str, partition: Partition) -> WhyNot:
    """Why a session may not write to a partition: sidecars write to mirrors, others to the rest."""
    is_mirror = partition.number in state.mirrors.places
    if is_mirror is is_mirror_session(session):
        return None
    topic = state.topics.by_id[partition.topic_id]
    text = why_only_source(state, topic) or f"topic {topic.name!r} is no mirror"
    return MIRROR, text


def problem_with_settings(state: State, topic_id: str, settings: Mapping[str, str]) -> WhyNot:
    """Why a mirror cannot have these settings: its bytes are the source's."""
    is_mirror = state.mirrors.of_topic(topic_id) is not None
    if is_mirror and is_compacted(settings.get(CLEANUP_POLICY, "")):
        return MIRROR, "a mirror is not compacted: its records are the source's"
    return None


# --- merging --------------------------------------------------------------------------------------


def take_mirrored(state: State, merge: Merge, mirrored: Mirrored) -> None:
    """An instruction for a mirror is applied: the topic's epochs never fall behind it."""
    place, bases = state.mirrors.places[merge.partition], state.epochs.by_partition
    place.take(merge, mirrored)
    behind = place.top_epoch - merge.epoch
    if behind > 0:
        topic = state.topics.by_id[state.partitions.by_number[merge.partition].topic_id]
        base = bases.get(merge.partition, 0) + behind
        for number in topic.partition_numbers:  # clients are told one epoch of all of them
            bases[number] = base


def _topic_with(state: State, number: int) -> Topic | None:
    partition = state.partitions.by_number.get(number)
    return None if partition is None else state.topics.by_id.get(partition.topic_id)


def _no_mirror(topic: Topic | None) -> str:
    return "the topic was deleted" if topic is None else f"topic {topic.name!r} is no mirror"


# --- gaps -----------------------------------------------------------------------------------------


def _leave_gap(state: State, command: MirrorGap) -> WhyNot:
    partition = state.partitions.by_number.get(command.partition)
    place = state.mirrors.places.get(command.partition)
    if partition is None or place is None:
        return MIRROR, _no_mirror(_topic_with(state, command.partition))
    first, behind = command.base_offset, command.next_offset
    if _is_left(partition, command):
        return None  # proposed twice, because its fate was not known
    is_empty = place.crc is None and first == partition.start_segment
    if partition.next_offset != first or not first < behind + is_empty:
        return "PRECONDITION", f"the mirror ends at {partition.next_offset}, not {first}"
    if is_empty:
        _begin_at(partition, command)
        place.checksum = command.checksum
    else:
        _void(state, partition, command)
        if place.crc is not None and place.behind is None:
            place.behind = first
        place.checksum = None
    return None


def _is_left(partition: Partition, command: MirrorGap) -> bool:
    first, behind = command.base_offset, command.next_offset
    is_void = any(each.next_offset == behind for each in partition.voids)
    return first < behind == partition.next_offset and (
        is_void or partition.start_segment == behind
    )


def _begin_at(partition: Partition, command: MirrorGap) -> None:
    """An empty mirror begins later, as a log does of which the rest is archived."""
    start = command.next_offset
    partition.next_offset = partition.start_segment = start
    partition.log_start = max(start, command.log_start)
    partition.start_checksum = command.checksum or 0
    partition.checked_offset, partition.checked_sum = start, partition.start_checksum


def _void(state: State, partition: Partition, command: MirrorGap) -> None:
    partition.next_offset = command.next_offset
    partition.voids = (*partition.voids, void_of(state, partition, command))
    partition.checked_offset, partition.checked_sum = partition.next_offset, None
    state.events.remember(_gap_event(state, partition, command))


def _gap_event(state: State, partition: Partition, command: MirrorGap) -> RecordEvent:
    name = f"{state.topics.by_id[partition.topic_id].name}-{partition.index}"
    offsets = f"offsets {command.base_offset} to {command.next_offset - 1}"
    text = f"{name}: {offsets} are void, since its source has none: {command.text}"
    return RecordEvent(command.at_ms, "mirror-gap", text[:1000])


def gap_to_come(state: State, command: MirrorGap) -> RecordEvent | None:
    """What will be remembered of a gap, if it is done; None: it is there, or begins the mirror."""
    partition = state.partitions.by_number.get(command.partition)
    place = state.mirrors.places.get(command.partition)
    if partition is None or place is None or partition.next_offset != command.base_offset:
        return None
    is_empty = place.crc is None and command.base_offset == partition.start_segment
    return None if is_empty else _gap_event(state, partition, command)


def void_of(state: State, partition: Partition, command: MirrorGap) -> VoidRecordsCommand:
    """What every node fills the offsets with."""
    segment = partition.rolls[-1][0] if partition.rolls else partition.start_segment
    epoch = max(0, state.mirrors.places[partition.number].top_epoch)
    first, behind = command.base_offset, command.next_offset
    return VoidRecordsCommand(
        partition.number, first, behind, segment, epoch, partition.append_ms, command.at_ms
    )


def archived_by(state: State, command: MirrorGap) -> ArchiveCommand | None:
    """What an empty mirror that begins later is to the log: one whose beginning is archived. None:
    it was not empty.
    """
    partition = state.partitions.by_number[command.partition]
    first, start = command.base_offset, command.next_offset
    if partition.start_segment != start:
        return None
    whole = [ArchivedSegment(first, start, 0, -1, -1, -1, bytes(32))] if first < start else []
    return ArchiveCommand(
        command.partition,
        partition.log_start,
        start,
        partition.start_checksum,
        command.at_ms,
        "not at the source",
        whole,
    )


def open_before_gap(state: State, number: int) -> int | None:
    """Where the oldest open transaction of a mirror begins, if it is before a gap: its end may have
    been in there, and then it is open until the mirror is promoted.
    """
    first, voids = state.mirrors.first_open(number), state.partitions.by_number[number].voids
    return first if first is not None and any(first < v.base_offset for v in voids) else None


# --- promotion ------------------------------------------------------------------------------------


def _promote(state: State, command: PromoteMirrors) -> WhyNot:
    for topic_id in command.topic_ids:
        if topic_id not in state.topics.by_id or topic_id not in state.mirrors.topics:
            return MIRROR, _no_mirror(state.topics.by_id.get(topic_id))
    for topic_id in command.topic_ids:
        if state.mirrors.of_topic(topic_id) is not None:  # else it is promoted already
            _promote_topic(state, state.topics.by_id[topic_id], command)
    return None


def promotion_event(state: State, topic: Topic, command: PromoteMirrors) -> RecordEvent:
    """What is remembered, and told, of a mirror that is promoted now."""
    ends = ", ".join(
        str(state.partitions.by_number[each].next_offset) for each in topic.partition_numbers
    )
    text = f"{topic.name} is a mirror no more, from offsets {ends} on, by {command.by}"
    return RecordEvent(command.at_ms, "mirror-promoted", text[:1000])


def _promote_topic(state: State, topic: Topic, command: PromoteMirrors) -> None:
    mirrors = state.mirrors
    known = mirrors.topics[topic.topic_id]
    for number in topic.partition_numbers:
        known.ends.append(state.partitions.by_number[number].next_offset)
        place = mirrors.places.pop(number)
        for producer_id, batches in place.producers.items():
            state.producers.take(number, producer_id, batches, command.at_ms)
        mirrors.promoted.append(number)
        bases = state.epochs.by_partition
        bases[number] = bases.get(number, 0) + 1  # no mirrored batch has the epoch of a later one
        if place.open:
            mirrors.owed[number] = [(each, *opened) for each, opened in place.open.items()]
    for copied in mirrors.positions.values():
        for number in topic.partition_numbers:
            copied.pop(number, None)
    known.promoted_ms = command.at_ms
    state.events.remember(promotion_event(state, topic, command))


# --- what comes along -----------------------------------------------------------------------------


def follow_source(state: State, command: FollowSource) -> FollowSource:
    """Apply it: what is not mirrored, or not copied, stays as it is."""
    for number, since in command.since:
        if number in state.mirrors.places and number in state.partitions.by_number:
            state.partitions.by_number[number].schema_since = tuple(since)
    moved = [
        (group, number)
        for group, positions in command.positions
        for number, position in positions
        if _follow_position(state, group, number, position)
    ]
    if moved:
        note_groups(state, moved)
        state.feeds.moved()
    return command


def _follow_position(state: State, group: str, number: int, position: CommittedOffset) -> bool:
    """A group is where it is at the source, unless that is not mirrored or it is used here. Whether
    it moved.
    """
    if number not in state.mirrors.places or is_own(state, group, number):
        return False
    copied = state.mirrors.positions.setdefault(group, {})
    if position.at_ms < copied.get(number, position.at_ms):
        return False
    reached = min(position.offset, state.partitions.by_number[number].next_offset)
    kept = msgspec.structs.replace(position, offset=reached)
    offsets = state.groups.by_id.setdefault(group, ConsumerGroupRecord()).offsets
    has_moved = offsets.get(number) != kept
    offsets[number], copied[number] = kept, position.at_ms
    return has_moved


def is_own(state: State, group: str, number: int) -> bool:
    """Whether a group's position is its own: it has members here, or was committed here."""
    known = state.groups.by_id.get(group)
    if known is None:
        return False
    copied = state.mirrors.positions.get(group, {}).get(number)
    there = known.offsets.get(number)
    return known.has_members or (there is not None and there.at_ms != copied)


MIRROR_CHANGES: Mapping[type, Callable[[Any, Any], WhyNot]] = {
    MirrorGap: _leave_gap,
    PromoteMirrors: _promote,
}
"""Why a command changes nothing, if it does not."""
