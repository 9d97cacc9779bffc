"""Planted bugs in mirrors: of what follows what, who writes, what comes along, and when it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from samelog.admin.mirror_answers import MirroredPartition, SourcePartition
from samelog.config.authorisation import Rights
from samelog.mirror import files_source, sidecar
from samelog.mirror.copying import PartitionMirror
from samelog.mirror.ends import RestoreEnds
from samelog.mirror.files_source import FilesSource
from samelog.mirror.following import BatchFollower
from samelog.mirror.progress import MirrorProgress
from samelog.mirror.rounds import SchemaGate
from samelog.mirror.sidecar import MirrorSidecar
from samelog.mirror.source import Where
from samelog.sequencer.admin.mirroring import mirrors as mirror_requests
from samelog.sequencer.ingest import batch_check
from samelog.sequencer.merge import merger, mirrored
from samelog.sequencer.merge.dedup import DedupView
from samelog.sequencer.merge.mirrored import MirroredRanges
from samelog.sequencer.state import machine
from samelog.sequencer.state.instructions import Merge, Verdict
from samelog.sequencer.state.tables.mirrors import (
    MirrorPlace,
    MirrorsTable,
    PromoteMirrors,
    TellMirrors,
)
from samelog.sequencer.state.tables.transfers import TransfersTable
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units import merges, mirrors, sessions, topics


@contextmanager
def take_whatever_the_sidecar_brings() -> Iterator[None]:
    """The planner gives mirrored batches its own offsets."""
    with patch.object(MirroredRanges, "_verdict", lambda *given: Verdict.TAKE):
        yield


@contextmanager
def believe_headers_without_a_sum() -> Iterator[None]:
    """Offsets and epochs of mirrored batches are as this node has them."""
    with patch.object(merger, "_has_sum", lambda *given: True):
        yield


@contextmanager
def anybody_opens_a_mirror() -> Iterator[None]:
    """Publishers may write to mirrors."""
    with patch.object(sessions, "why_no_mirror_input", lambda *given: None):
        yield


@contextmanager
def merge_into_mirrors() -> Iterator[None]:
    """An instruction that was planned before is applied to a mirror."""
    original = merges.merge

    def merge(state: State, command: Merge) -> Any:
        places = state.mirrors.places
        is_mirrored = command.extras is not None and command.extras.mirrored is not None
        place = None if is_mirrored else places.pop(command.partition, None)
        outcome = original(state, command)
        if place is not None:
            places[command.partition] = place
        return outcome

    with patch.object(merges, "merge", merge), patch.dict(machine.APPLY, {Merge: merge}):
        yield


@contextmanager
def teach_dedup_what_is_mirrored() -> Iterator[None]:
    """Producers of the source are remembered as if they were here."""

    def learn(state: State, command: Merge) -> None:
        state.producers.learn(command.partition, command.sequences, command.append_ms)

    with patch.object(merges, "_learn", learn):
        yield


@contextmanager
def positions_at_once() -> Iterator[None]:
    """A group is where it is at the source, mirrored or not."""
    with patch.object(mirrors, "min", lambda offset, end: offset, create=True):
        yield


@contextmanager
def positions_ahead_of_data_groups() -> Iterator[None]:
    """A node lets a group be where it is at the source, however far its partition is."""
    with patch.object(mirror_requests, "min", lambda offset, end: offset, create=True):
        yield


@contextmanager
def promote_before_all_have_ended() -> Iterator[None]:
    """A topic is its own as soon as one of its partitions has ended."""
    original = mirrors._tell_mirrors

    def tell(state: State, command: TellMirrors) -> Any:
        for promotion in state.mirrors.promotions:
            for topic_id in promotion.topic_ids:
                numbers = state.topics.by_id[topic_id].partition_numbers
                promotion.ends = dict.fromkeys(numbers, 0) | promotion.ends
        return original(state, command)

    with patch.dict(machine.CHANGES, {TellMirrors: tell}):
        yield


@contextmanager
def forget_promotions_of_deleted_topics() -> Iterator[None]:
    """A promotion waits for a topic that is deleted meanwhile."""
    with patch.object(topics, "promote_ended", lambda state: None):
        yield


@contextmanager
def leave_mirrors_behind() -> Iterator[None]:
    """What is known of a mirrored partition does not move with it."""
    nothing = MirrorsTable().export(0)
    with patch.object(MirrorsTable, "export", lambda self, number: nothing):
        yield


@contextmanager
def end_what_is_sealed() -> Iterator[None]:
    """A group ends the mirroring of a partition that it has sealed for another one."""
    original = mirrors._promote

    def promote(state: State, command: PromoteMirrors) -> Any:
        with patch.object(TransfersTable, "is_on_its_way", lambda self, number: False):
            return original(state, command)

    with patch.dict(machine.CHANGES, {PromoteMirrors: promote}):
        yield


@contextmanager
def keep_epochs_to_the_group() -> Iterator[None]:
    """A group does not say that mirrored records have raised the leader epochs of a partition."""
    original = mirrors._tell_mirrors

    def tell(state: State, command: TellMirrors) -> Any:
        kept = [replace(each, epoch_base=0) for each in command.states]
        return original(state, TellMirrors(kept))

    with patch.dict(machine.CHANGES, {TellMirrors: tell}):
        yield


@contextmanager
def let_publishers_in_before_the_end() -> Iterator[None]:
    """A data group takes records of publishers while it is still mirrored."""
    original = mirrors.why_no_mirror_input

    def why_not(state: State, session: str, partition: Any) -> Any:
        return None if state.placement.own else original(state, session, partition)

    with patch.object(sessions, "why_no_mirror_input", why_not):
        yield


@contextmanager
def copy_over_own_positions() -> Iterator[None]:
    """What a group commits at the mirror is overwritten."""
    with patch.object(mirrors, "is_own", lambda *given: False):
        yield


@contextmanager
def higher_positions_count() -> Iterator[None]:
    """A group that was reset at the source stays where it was."""
    original = mirrors._follow_position

    def follow(state: State, group: str, number: int, position: Any) -> bool:
        known = state.groups.by_id.get(group)
        there = None if known is None else known.offsets.get(number)
        is_higher = there is None or position.offset >= there.offset
        return is_higher and original(state, group, number, position)

    with patch.object(mirrors, "_follow_position", follow):
        yield


@contextmanager
def go_on_after_a_fork() -> Iterator[None]:
    """Nobody compares what is before the mirror's end."""

    async def compare(
        self: PartitionMirror, here: MirroredPartition, there: SourcePartition
    ) -> None:
        return

    with patch.object(PartitionMirror, "_compare", compare):
        yield


@contextmanager
def forget_what_is_before_a_hole() -> Iterator[None]:
    """Behind a hole nothing is compared: the source may have lost what was before it."""
    original = PartitionMirror._compare

    async def compare(
        self: PartitionMirror, here: MirroredPartition, there: SourcePartition
    ) -> None:
        known = here if here.behind is None else replace(here, crc=None)
        await original(self, known, there)

    with patch.object(PartitionMirror, "_compare", compare):
        yield


@contextmanager
def trust_what_was_brought() -> Iterator[None]:
    """Running checksums are not compared."""
    with patch.object(BatchFollower, "compare", lambda *given: None):
        yield


@contextmanager
def promote_a_topic_twice() -> Iterator[None]:
    """A promotion that is repeated is another one."""
    original = mirrors._promote

    def promote(state: State, command: Any) -> Any:
        for topic_id in command.topic_ids:
            known = state.mirrors.topics.get(topic_id)
            if known is not None and known.promoted_ms >= 0:
                known.promoted_ms, known.ends = -1, []
                numbers = state.topics.by_id[topic_id].partition_numbers
                state.mirrors.drop(numbers)
                state.mirrors.begin(topic_id, known, numbers)
        return original(state, command)

    planted = {**mirrors.MIRROR_CHANGES}
    kinds = [kind for kind, change in planted.items() if change is original]
    with patch.dict(machine.CHANGES, dict.fromkeys(kinds, promote)):
        yield


@contextmanager
def leave_transactions_open() -> Iterator[None]:
    """A promotion aborts nothing."""
    with patch.object(MirrorsTable, "owed_ends", lambda self: {}):
        yield


@contextmanager
def bring_before_the_schemas() -> Iterator[None]:
    """Records do not wait for the schemas that they may have been written with."""

    async def passed(self: SchemaGate) -> None:
        return

    with patch.object(SchemaGate, "passed", passed):
        yield


@contextmanager
def mirror_onto_oneself() -> Iterator[None]:
    """A topic may be a mirror of one that comes from here."""
    with patch.object(topics, "root_of", lambda cluster_id: ""):
        yield


@contextmanager
def publishers_may_mirror() -> Iterator[None]:
    """Whoever may publish a topic may bring it as a mirror."""

    def may_mirror(self: Rights, identity: str, topic: str) -> bool:
        return any(grant.publish_topics for grant in self._of(identity))

    with patch.object(Rights, "may_mirror", may_mirror):
        yield


@contextmanager
def unknown_lag_is_none() -> Iterator[None]:
    """The last known end counts for ever."""

    def lost_source(self: MirrorProgress, reason: str) -> None:
        self.source_fault = reason

    with patch.object(MirrorProgress, "lost_source", lost_source):
        yield


@contextmanager
def look_for_the_end_again() -> Iterator[None]:
    """A restore that is started again ends where the source ends then."""
    with patch.object(RestoreEnds, "are_known", property(lambda self: not self.until)):
        yield


@contextmanager
def forget_gaps_that_wait() -> Iterator[None]:
    """What is behind a gap follows only where the gap is filled already."""
    with patch.object(merger.PartitionMerger, "_leads_to", lambda self, end, base: end == base):
        yield


@contextmanager
def leave_compacted_holes() -> Iterator[None]:
    """What is compacted away at the source is nothing at the mirror either."""
    with patch.object(BatchFollower, "_fill", lambda self, found, data, header: None):
        yield


@contextmanager
def stop_at_what_is_compacted() -> Iterator[None]:
    """A source that compacts what is mirrored is taken for one that lost it."""

    def is_same(self: PartitionMirror, found: Any, place: int, crc: int) -> bool:
        return (found.next_offset, found.crc) == (place, crc)

    with patch.object(PartitionMirror, "_is_same", is_same):
        yield


@contextmanager
def take_holes_from_anybody() -> Iterator[None]:
    """Any client may send batches that lack records."""
    with patch.object(batch_check, "MIRRORED", batch_check.ANY_PRODUCER):
        yield


@contextmanager
def let_segments_be_wide() -> Iterator[None]:
    """A segment has whatever offsets come, though its index counts in 31 bits."""
    with patch.object(mirrored, "SEGMENT_OFFSETS", 1 << 62):
        yield


@contextmanager
def forget_producers_of_the_source() -> Iterator[None]:
    """What was sent to a source is not known where its mirror is promoted."""
    with patch.object(MirrorPlace, "_remember", lambda self, sequence: None):
        yield


@contextmanager
def forget_twins_of_the_source() -> Iterator[None]:
    """What twins had reached at a source is not known where its mirror is promoted."""
    with patch.object(DedupView, "_mirrored", lambda *given: None):
        yield


@contextmanager
def take_ends_of_some() -> Iterator[None]:
    """A restore ends without the topics that nobody had when it began."""
    with patch.object(sidecar, "_check_all", lambda missing, topics: None):
        yield


@contextmanager
def wait_for_half_a_batch() -> Iterator[None]:
    """A restore to a time within a batch never ends."""

    def is_there(self: Any, pair: Any, here: MirroredPartition) -> bool:
        return here.next_offset >= (self._ends.of(pair.topic.topic, here.partition) or 0)

    with patch.object(MirrorSidecar, "_is_there", is_there):
        yield


@contextmanager
def mirror_half_a_topic() -> Iterator[None]:
    """Of a topic whose partitions are not all in a directory, the others are mirrored."""

    def whole(logs: Mapping[int, Where]) -> bool:
        return len({each.log_id for each in logs.values()}) == 1

    with patch.object(files_source, "is_whole", whole):
        yield


@contextmanager
def join_two_logs() -> Iterator[None]:
    """Partitions of two logs of one name are taken for one topic."""
    with patch.object(files_source, "is_whole", lambda logs: set(logs) == set(range(len(logs)))):
        yield


@contextmanager
def take_schemas_of_any_log() -> Iterator[None]:
    """The schemas beside a log count, though they are of an older one of its name."""
    original = FilesSource._topic

    def topic(self: Any, name: str, logs: Any) -> Any:
        known = self._schemas.known(name)
        ours = None if known is None else replace(known, topic_id=logs[0].log_id)
        with patch.object(self._schemas, "known", lambda name: ours):
            return original(self, name, logs)

    with patch.object(FilesSource, "_topic", topic):
        yield


_STATE = "tests/sequencer/test_mirrors.py::"
_PLACED = "tests/sequencer/test_placed_mirrors.py::"
_ANSWERS = "tests/sequencer/test_mirror_answers.py::"
_COPYING = "tests/mirror/test_copying.py::"
_SIDECAR = "tests/mirror/test_sidecar.py::"
_FILES = "tests/mirror/test_files_source.py::test_"
MIRRORING = (
    (
        "mirrors.1",
        take_whatever_the_sidecar_brings,
        _STATE + "test_what_does_not_follow_is_passed_over",
    ),
    (
        "mirrors.1",
        believe_headers_without_a_sum,
        _STATE + "test_other_headers_than_the_leaders_are_not_merged",
    ),
    ("mirrors.1", forget_gaps_that_wait, _STATE + "test_what_follows_a_gap_waits_behind_it"),
    ("mirrors.2", anybody_opens_a_mirror, _STATE + "test_nobody_else_opens_a_mirror"),
    (
        "mirrors.2",
        merge_into_mirrors,
        _STATE + "test_a_merge_for_a_mirror_is_rejected_and_the_other_way_round",
    ),
    ("mirrors.3", teach_dedup_what_is_mirrored, _STATE + "test_dedup_learns_nothing"),
    (
        "mirrors.4",
        positions_at_once,
        _STATE + "test_positions_never_lead_the_log_and_are_raised_later",
    ),
    (
        "mirrors.4",
        positions_ahead_of_data_groups,
        _ANSWERS + "test_a_position_in_a_data_group_waits_for_its_records",
    ),
    ("mirrors.5", copy_over_own_positions, _STATE + "test_a_group_that_is_used_here_is_its_own"),
    (
        "mirrors.5",
        higher_positions_count,
        _STATE + "test_the_newer_commit_counts_not_the_higher_offset",
    ),
    ("mirrors.6", go_on_after_a_fork, _COPYING + "test_other_records_before_the_end_stop_it"),
    (
        "mirrors.6",
        forget_what_is_before_a_hole,
        _COPYING + "test_other_records_before_a_hole_stop_it",
    ),
    (
        "mirrors.7",
        trust_what_was_brought,
        "tests/mirror/test_following.py::test_running_checksums_are_compared",
    ),
    ("mirrors.8", promote_a_topic_twice, _STATE + "test_promotion_ends_a_mirror_once"),
    (
        "mirrors.8",
        promote_before_all_have_ended,
        _PLACED + "test_topics_are_promoted_when_all_their_partitions_have_ended",
    ),
    (
        "mirrors.8",
        forget_promotions_of_deleted_topics,
        _PLACED + "test_a_promotion_ends_without_a_topic_that_is_deleted",
    ),
    (
        "mirrors.2",
        let_publishers_in_before_the_end,
        _PLACED + "test_only_the_sidecar_writes_to_a_mirror_in_a_data_group",
    ),
    (
        "mirrors.17",
        leave_mirrors_behind,
        _PLACED + "test_what_is_known_of_a_mirror_moves_with_the_partition",
    ),
    (
        "mirrors.17",
        end_what_is_sealed,
        _PLACED + "test_what_is_sealed_for_another_group_does_not_change",
    ),
    (
        "mirrors.18",
        keep_epochs_to_the_group,
        _PLACED + "test_group_0_learns_of_leader_epochs_that_mirrored_records_have_raised",
    ),
    ("mirrors.8", leave_transactions_open, _STATE + "test_open_transactions_end_at_promotion"),
    (
        "mirrors.9",
        bring_before_the_schemas,
        _SIDECAR + "test_schemas_are_there_before_records_that_came_after_them",
    ),
    ("mirrors.10", mirror_onto_oneself, _STATE + "test_records_do_not_go_in_circles"),
    (
        "mirrors.11",
        publishers_may_mirror,
        "tests/config/test_authorisation.py::test_mirrors_take_a_right",
    ),
    ("mirrors.12", unknown_lag_is_none, _SIDECAR + "test_a_lag_that_is_not_known_is_no_number"),
    ("archive.7", look_for_the_end_again, _SIDECAR + "test_a_restore_has_one_end"),
    (
        "archive.7",
        take_ends_of_some,
        _SIDECAR + "test_a_restore_waits_for_all_topics_before_it_takes_their_ends",
    ),
    (
        "archive.7",
        wait_for_half_a_batch,
        _SIDECAR + "test_a_restore_ends_before_a_batch_that_spans_its_end",
    ),
    (
        "mirrors.13",
        leave_compacted_holes,
        _COPYING + "test_a_compacted_source_is_one_log_with_the_same_offsets",
    ),
    (
        "mirrors.13",
        stop_at_what_is_compacted,
        _COPYING + "test_what_the_source_compacts_behind_the_mirror_stops_nothing",
    ),
    ("mirrors.13", take_holes_from_anybody, _STATE + "test_only_mirrors_take_what_was_compacted"),
    (
        "merge.13",
        let_segments_be_wide,
        _STATE + "test_a_segment_has_no_more_offsets_than_its_index_takes",
    ),
    (
        "mirrors.14",
        forget_producers_of_the_source,
        _STATE + "test_producers_go_on_after_a_promotion",
    ),
    ("mirrors.14", forget_twins_of_the_source, _STATE + "test_twins_go_on_after_a_promotion"),
    (
        "mirrors.15",
        mirror_half_a_topic,
        _FILES + "a_topic_of_which_a_partition_is_missing_is_not_mirrored",
    ),
    ("mirrors.15", join_two_logs, _FILES + "partitions_of_two_logs_of_one_name_are_not_one_topic"),
    (
        "mirrors.15",
        take_schemas_of_any_log,
        _FILES + "schemas_of_another_log_of_the_name_do_not_count",
    ),
)
"""Rule, bug, and the test that finds it."""
