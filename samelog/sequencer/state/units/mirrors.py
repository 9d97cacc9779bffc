"""What commands about mirrors change in the replicated state, and who may not write to one.

Group 0 decides a promotion; the group of each partition ends the mirroring by an entry of its own,
and reports the offset. With the last report, the topics of the promotion stop being mirrors.

Invariant: nothing is ever added to a mirror but by a mirrored `Merge` that begins at its next
offset, or a `MirrorGap` there; neither does anything to any other topic (docs/mirror.md, M4, M7). A
position of a group is never ahead of its mirror (M14). What a group has sealed for another one does
not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from samelog.archiver.command import ArchiveCommand, ArchivedSegment
from samelog.archiver.policy import CLEANUP_POLICY, is_compacted
from samelog.format.names import EVENTS_TOPIC, is_mirror_session
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.instructions import Merge, Mirrored, VoidRecordsCommand
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.groups import CommittedOffset, ConsumerGroupRecord
from samelog.sequencer.state.tables.mirrors import (
    FollowSource,
    MirrorGap,
    MirrorPlace,
    MirrorPromotion,
    MirrorState,
    PromoteMirrors,
    TellMirrors,
)
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
    """Why a session may not write to a partition: sidecars write to mirrors, others to the rest. A
    data group is asked for what group 0 has allowed, which goes by the topic.
    """
    topic, mirrors = state.topics.by_id[partition.topic_id], state.mirrors
    is_sidecar, is_elsewhere = is_mirror_session(session), bool(state.placement.own)
    if is_elsewhere and partition.number in mirrors.places:
        text = f"the mirroring of {topic.name}-{partition.index} has yet to end in its group"
        return None if is_sidecar else ("ENDING", text)
    only_source = None if is_elsewhere else why_only_source(state, topic)
    if (only_source is not None) is is_sidecar:
        return None
    return MIRROR, only_source or f"topic {topic.name!r} is no mirror"


def why_not_wider(state: State, topic: Topic) -> WhyNot:
    """Why a topic gets no more partitions: those that it has are ending."""
    if state.mirrors.promotion_of(topic.topic_id) is None:
        return None
    return MIRROR, f"topic {topic.name!r} is being promoted"


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
        for number in topic.partition_numbers:  # of group 0, clients are told one epoch of all
            if number == merge.partition or not state.placement.own:
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
    if _is_left(partition, command):
        return None  # proposed twice, because its fate was not known
    problem = _why_no_gap(state, partition, command)
    if problem is not None:
        return problem
    if _is_empty(place, partition, command):
        _begin_at(partition, command)
        place.checksum = command.checksum
    else:
        _void(state, partition, command)
        if place.crc is not None and place.behind is None:
            place.behind = command.base_offset
        place.checksum = None
    return None


def _is_empty(place: MirrorPlace, partition: Partition, command: MirrorGap) -> bool:
    """Whether a mirror has no records, and begins at the gap."""
    return place.crc is None and command.base_offset == partition.start_segment


def _why_no_gap(state: State, partition: Partition, command: MirrorGap) -> WhyNot:
    if state.transfers.is_on_its_way(partition.number):
        return "ON_ITS_WAY", f"partition {partition.number} is on its way between two groups"
    first, behind = command.base_offset, command.next_offset
    is_empty = _is_empty(state.mirrors.places[partition.number], partition, command)
    if partition.next_offset != first or not first < behind + is_empty:
        return "PRECONDITION", f"the mirror ends at {partition.next_offset}, not {first}"
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
    is_empty = _is_empty(place, partition, command)
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
    if (promotion := _new_promotion(state, command)) is not None:
        state.mirrors.promotions.append(promotion)
    topics = set(command.topic_ids)
    for number in [*state.mirrors.places]:
        is_meant = state.partitions.by_number[number].topic_id in topics
        if is_meant and not state.transfers.is_on_its_way(number):
            _end_partition(state, number, command.at_ms)
    promote_ended(state)
    return None


def _new_promotion(state: State, command: PromoteMirrors) -> MirrorPromotion | None:
    """What group 0 has to wait for; None: nothing that it does not know."""
    mirrors = state.mirrors
    topic_ids = [
        each
        for each in dict.fromkeys(command.topic_ids)
        if mirrors.of_topic(each) is not None and mirrors.promotion_of(each) is None
    ]
    if state.placement.own or not topic_ids:
        return None
    return MirrorPromotion(topic_ids, command.at_ms, command.by)


def _end_partition(state: State, number: int, at_ms: int) -> None:
    end = state.partitions.by_number[number].next_offset
    for producer_id, batches in state.mirrors.end(number, end).producers.items():
        state.producers.take(number, producer_id, batches, at_ms)
    bases = state.epochs.by_partition
    bases[number] = bases.get(number, 0) + 1  # no mirrored batch has the epoch of a later one


def mirror_states(number: int, group: State, cluster: State) -> list[MirrorState]:
    """Return what data group `number` has yet to tell group 0, `cluster`, of partitions that the
    table has in it.
    """
    mirrors, found = group.mirrors, list[MirrorState]()
    for each in (*mirrors.places, *mirrors.ended):
        placed = cluster.placement.partitions.get(each)
        is_in = placed is not None and placed.group == number
        if placed is None or not is_in or group.transfers.is_on_its_way(each):
            continue
        base, end = group.epochs.base_of(each), mirrors.ended.get(each)
        promotion = cluster.mirrors.promotion_of(placed.topic_id)
        is_awaited = promotion is not None and each not in promotion.ends
        if base > placed.epoch_base or (end is not None and is_awaited):
            found.append(MirrorState(each, base, end))
    return found


def ending(group: State, cluster: State) -> list[PromoteMirrors]:
    """Return what ends the mirroring of a data group's partitions, as group 0 has decided it."""
    known = group.partitions.by_number
    topics = {
        known[number].topic_id
        for number in group.mirrors.places
        if not group.transfers.is_on_its_way(number)
    }
    decided = {each: cluster.mirrors.ends_since(each) for each in sorted(topics)}
    return [PromoteMirrors([each], at, "") for each, at in decided.items() if at is not None]


def _tell_mirrors(state: State, command: TellMirrors) -> WhyNot:
    table = state.placement
    for each in command.states:
        placed = table.partitions.get(each.partition)
        if placed is None:
            continue  # its topic was deleted, or its log restarted
        if each.epoch_base > placed.epoch_base:
            table.partitions[each.partition] = replace(placed, epoch_base=each.epoch_base)
        promotion = state.mirrors.promotion_of(placed.topic_id)
        if promotion is not None and each.end is not None:
            promotion.ends[each.partition] = each.end
    promote_ended(state)
    return None


def promote_ended(state: State) -> None:
    """In group 0: topics of promotions all of whose partitions have ended are mirrors no more."""
    for promotion in [*state.mirrors.promotions]:
        ends = _ends(state, promotion)
        if _numbers(state, promotion) <= ends.keys():
            state.mirrors.promotions.remove(promotion)
            for topic in filter(None, map(state.topics.by_id.get, promotion.topic_ids)):
                _promote_topic(state, topic, promotion, ends)


def groups_ending(state: State, topic_id: str) -> set[int]:
    """Return the groups of partitions that have yet to end, of a topic's whole promotion."""
    promotion = state.mirrors.promotion_of(topic_id)
    if promotion is None:
        return set()
    left = _numbers(state, promotion) - _ends(state, promotion).keys()
    return set(map(state.placement.group_of, left))


def _numbers(state: State, promotion: MirrorPromotion) -> set[int]:
    """Return all partitions of a promotion; topics that were deleted have none."""
    topics = filter(None, map(state.topics.by_id.get, promotion.topic_ids))
    return {number for topic in topics for number in topic.partition_numbers}


def _ends(state: State, promotion: MirrorPromotion) -> Mapping[int, int]:
    return state.mirrors.ended | promotion.ends


def _promote_topic(
    state: State, topic: Topic, promotion: MirrorPromotion, ends: Mapping[int, int]
) -> None:
    known = state.mirrors.topics[topic.topic_id]
    known.ends = [ends[number] for number in topic.partition_numbers]
    known.promoted_ms = promotion.at_ms
    state.mirrors.forget_positions(topic.partition_numbers)
    offsets = ", ".join(map(str, known.ends))
    text = f"{topic.name} is a mirror no more, from offsets {offsets} on, by {promotion.by}"[:1000]
    event = RecordEvent(promotion.at_ms, "mirror-promoted", text)
    state.events.remember(event)
    if EVENTS_TOPIC in state.topics.by_name:
        state.events.wait([(event.at_ms, event.kind, topic.name, text)])


# --- what comes along -----------------------------------------------------------------------------


def follow_source(state: State, command: FollowSource) -> FollowSource:
    """Apply it: what is not mirrored, or not copied, stays as it is."""
    for number, since in command.since:
        if number in state.mirrors.places and not state.transfers.is_on_its_way(number):
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
    it moved. Of a partition in a data group the position is one that its replica has allowed.
    """
    partition = state.partitions.by_number.get(number)
    is_mirrored = partition is not None and state.mirrors.of_topic(partition.topic_id) is not None
    if partition is None or not is_mirrored or is_own(state, group, number):
        return False
    copied = state.mirrors.positions.setdefault(group, {})
    if position.at_ms < copied.get(number, position.at_ms):
        return False
    is_here = number not in state.placement.partitions
    reached = min(position.offset, partition.next_offset) if is_here else position.offset
    kept = replace(position, offset=reached)
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
    TellMirrors: _tell_mirrors,
}
"""Why a command changes nothing, if it does not."""
