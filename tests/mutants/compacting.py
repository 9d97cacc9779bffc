"""Planted bugs in compaction that ordinary tests find."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from samelog.archiver import compaction, compaction_plan
from samelog.archiver.compaction import CompactedPartition, Compactions, RewrittenCommand
from samelog.archiver.compaction_progress import CompactionProgress
from samelog.archiver.rounds import ArchiveRounds
from samelog.format.compaction import CompactedSegment
from samelog.replicator.pull.streams import ServedMerged
from samelog.sequencer import building, recovery
from samelog.sequencer.cluster.repair import compacted
from samelog.sequencer.compaction.compactor import Compactor, CompactorParts
from samelog.sequencer.ingest.room import Room
from samelog.store.merged import generations, rewriting
from samelog.store.merged.generations import Generations
from samelog.store.merged.log import MergedLog
from samelog.store.merged.reader import MergedReader
from samelog.store.merged.rewriting import OldSegment, Rewriting
from samelog.store.merged.tail import MergedTail
from samelog.subscriber.tail_reader import TailReader


@contextmanager
def win_though_it_was_aborted() -> Iterator[None]:
    """A record of an aborted transaction is the newest of its key."""
    with patch.object(MergedReader, "aborted", lambda self, first, stop, most=None: []):
        yield


@contextmanager
def count_a_single_word() -> Iterator[None]:
    """What one member wrote is what all have."""

    def apply(partition: CompactedPartition, command: RewrittenCommand) -> str | None:
        order = partition.compactions.order
        if order is not None:
            compaction._finish(partition, order, command)
        return None

    with patch.object(compaction, "apply_rewritten", apply):
        yield


@contextmanager
def archive_what_is_being_compacted() -> Iterator[None]:
    """Segments are archived while they are being compacted."""

    def problem_with(self: Compactions, files: Any, now_ms: int) -> str | None:
        return None

    with patch.object(Compactions, "problem_with", problem_with):
        yield


@contextmanager
def hold_up_archiving_for_ever() -> Iterator[None]:
    """While a compaction is ordered nothing is archived, even if it never ends."""
    original = compaction.Compactions.problem_with

    def problem_with(self: Any, files: Any, now_ms: int) -> str | None:
        return original(self, files, 0)

    with patch.object(compaction.Compactions, "problem_with", problem_with):
        yield


@contextmanager
def take_what_a_fetch_left() -> Iterator[None]:
    """What is in a compaction's folder is taken when a log is opened, whoever wrote it."""

    def clear(self: Generations, needed: Any = ()) -> None:
        if self._fs.exists(self.folder(self.number)):
            self._take_names(0, 1 << 62)

    with patch.object(Generations, "clear_folders", clear):
        yield


@contextmanager
def believe_what_no_crc_covers() -> Iterator[None]:
    """What is compacted is not held against the running checksum."""
    original = Generations._source

    def source(self: Generations, base: int) -> OldSegment:
        found = original(self, base)
        return found._replace(bytes_checksum=_AnyChecksum())

    with patch.object(Generations, "_source", source):
        yield


class _AnyChecksum(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


@contextmanager
def swap_while_somebody_mends() -> Iterator[None]:
    """Compacted segments get in place while another segment of that name is mended."""

    def parts(**given: Any) -> CompactorParts:
        return CompactorParts(**{**given, "mending": asyncio.Lock()})

    with patch.object(building, "CompactorParts", parts):
        yield


@contextmanager
def fill_the_disk() -> Iterator[None]:
    """Compaction writes, whatever room is left for what is sent."""
    with patch.object(Room, "has", lambda self, size: True):
        yield


@contextmanager
def read_on_in_another_file() -> Iterator[None]:
    """A reader of a copy continues where it was, although the compacted segment is copied again."""
    with patch.object(MergedTail, "_is_other", lambda self, base: False):
        yield


@contextmanager
def want_what_no_member_has() -> Iterator[None]:
    """A node that goes on alone wants compacted segments that only the others had."""
    with patch.object(recovery, "keep_own_segments", lambda fs, state, data: None):
        yield


@contextmanager
def read_where_it_was() -> Iterator[None]:
    """An answer is read where its offset lay before other segments took the place of those."""
    with patch.object(MergedReader, "layout", 0):
        yield


@contextmanager
def miss_what_comes_again() -> Iterator[None]:
    """A reader of a copy gives up when the segment that it has read is copied again."""
    with patch.object(TailReader, "_comes_again", lambda self: False):
        yield


@contextmanager
def forget_what_was_written() -> Iterator[None]:
    """Reopening its log makes a node drop files that it reported as written."""
    with patch.object(Generations, "_read_written", lambda self: None):
        yield


@contextmanager
def unpack_for_good() -> Iterator[None]:
    """A compressed batch of which a record goes is written uncompressed."""
    with patch.object(rewriting, "compress", lambda codec, blob: blob):
        yield


@contextmanager
def merge_into_what_is_compacted() -> Iterator[None]:
    """Bytes as merged go behind a part of a compacted segment that is being copied."""
    with patch.object(Generations, "copied", None):
        yield


@contextmanager
def name_what_is_set_aside() -> Iterator[None]:
    """A damaged segment stays one that was compacted, whatever takes its place."""
    with patch.object(Generations, "keep_below", lambda self, offset: None):
        yield


@contextmanager
def forget_what_is_still_there() -> Iterator[None]:
    """A copy of a compacted segment that is cut is no such one, before its bytes are gone."""
    original = MergedLog.cut_back

    def cut_back(self: MergedLog, base: int, *, keep: bool = False) -> list[str]:
        self.generations.forget_from(base)
        return original(self, base, keep=keep)

    with patch.object(MergedLog, "cut_back", cut_back):
        yield


@contextmanager
def remove_what_is_to_come() -> Iterator[None]:
    """What a subscriber's copy has of compacted segments goes before the new ones are here."""
    original = MergedLog.cut_back

    def cut_back(self: MergedLog, base: int, *, keep: bool = False) -> list[str]:
        return original(self, base)

    with patch.object(MergedLog, "cut_back", cut_back):
        yield


@contextmanager
def take_forks_for_copies_of_before() -> Iterator[None]:
    """Whatever does not fit into a compacted segment is a copy of what was there before."""
    with patch.object(ServedMerged, "_has_forked", lambda self, base, message: False):
        yield


@contextmanager
def trust_topics_to_stay() -> Iterator[None]:
    """A partition is looked up as if no topic could be deleted meanwhile."""

    def known(self: Compactor, number: int, here: Any) -> Any:
        return self._parts.machine.state.partitions.by_number[number]

    with patch.object(Compactor, "_known", known):
        yield


@contextmanager
def go_on_with_what_is_given_up() -> Iterator[None]:
    """A compaction is carried out to its end, though it was ordered no more long before."""
    with patch.object(Compactor, "_is_wanted", lambda self, *given: True):
        yield


@contextmanager
def archive_what_goes_on() -> Iterator[None]:
    """What takes longer than an hour to compact is archived meanwhile, and never compacted."""
    with patch.object(ArchiveRounds, "_waits", lambda self, each: False):
        yield


@contextmanager
def wait_for_words_that_differ() -> Iterator[None]:
    """An order of which nothing comes stays for ever."""
    with patch.object(CompactionProgress, "goes_on", lambda self, number, now: True):
        yield


@contextmanager
def be_refused_in_silence() -> Iterator[None]:
    """What a node wrote is told again and again, though nobody takes it."""
    with patch.object(Compactor, "_wait", lambda self, number, event, why: None):
        yield


@contextmanager
def name_too_many_segments() -> Iterator[None]:
    """A large partition of small segments becomes more of them than an entry can name."""
    with patch.object(compaction_plan, "_segment_bytes", lambda facts, taken: 1 << 20):
        yield


@contextmanager
def read_a_megabyte_only() -> Iterator[None]:
    """A log with many compacted segments cannot be opened again."""
    with patch.object(generations, "LIMIT_BYTES", 1 << 20):
        yield


@contextmanager
def compare_all_again() -> Iterator[None]:
    """Every round compares all compacted segments."""
    original = Compactor._lacking

    def lacking(self: Compactor, *given: Any) -> list[CompactedSegment]:
        self._settled.clear()
        return original(self, *given)

    with patch.object(Compactor, "_lacking", lacking):
        yield


@contextmanager
def rest_before_it_is_in_place() -> Iterator[None]:
    """A data group rests though a compaction was decided that is not in place."""
    with patch.object(Compactor, "is_busy", False):
        yield


@contextmanager
def wait_in_what_others_closed() -> Iterator[None]:
    """Who ends where a compacted segment ends asks for more of one that nobody has."""
    with patch.object(compacted, "_is_whole", lambda log, segments: False):
        yield


@contextmanager
def sum_up_what_is_left() -> Iterator[None]:
    """Behind a compacted segment the running checksum is that of its own bytes."""
    original = Rewriting.step

    def step(self: Rewriting) -> int:
        done = original(self)
        self.written = [_summed(each) for each in self.written]
        return done

    with patch.object(Rewriting, "step", step):
        yield


def _summed(each: CompactedSegment) -> CompactedSegment:
    sealed = msgspec.structs.replace(each.sealed, checksum=each.bytes_checksum)
    return msgspec.structs.replace(each, sealed=sealed)


@contextmanager
def compact_again_at_once() -> Iterator[None]:
    """One compaction follows the other, and archiving that has waited waits again."""
    with patch.object(ArchiveRounds, "comes_first", lambda self, partition: False):
        yield


_COMMANDS = "tests/archiver/test_compaction.py::"
_FILES = "tests/store/test_compaction.py::"
_ORDERS = "tests/sequencer/test_compaction_orders.py::"
_NODE = "tests/sequencer/test_compactor.py::"
_FETCH = "tests/kafka/test_fetching.py::"
_COPIES = "tests/replicator/test_pull_compacted.py::"
_COPYING = "tests/sequencer/test_copying_compacted.py::"
_MERGER = "tests/sequencer/test_merger.py::"
COMPACTING = (
    ("archive.2", win_though_it_was_aborted, _FILES + "test_what_was_aborted_never_wins"),
    ("archive.3", count_a_single_word, _COMMANDS + "test_what_a_majority_wrote_counts"),
    (
        "archive.3",
        compact_again_at_once,
        _ORDERS + "test_archiving_has_its_turn_between_two_compactions",
    ),
    (
        "archive.3",
        archive_what_is_being_compacted,
        _COMMANDS + "test_nothing_is_archived_while_it_is_compacted",
    ),
    (
        "archive.3",
        hold_up_archiving_for_ever,
        _COMMANDS + "test_an_order_that_does_not_end_is_given_up_for_archiving",
    ),
    ("archive.3", fill_the_disk, _NODE + "test_without_room_nothing_is_written"),
    (
        "archive.2",
        believe_what_no_crc_covers,
        _FILES + "test_damage_that_no_crc_covers_makes_nothing_go",
    ),
    ("archive.3", trust_topics_to_stay, _ORDERS + "test_a_topic_may_go_at_any_moment"),
    (
        "archive.3",
        go_on_with_what_is_given_up,
        _ORDERS + "test_what_is_ordered_no_more_is_not_gone_on_with",
    ),
    (
        "archive.3",
        archive_what_goes_on,
        _ORDERS + "test_archiving_waits_for_a_compaction_that_goes_on",
    ),
    ("archive.3", wait_for_words_that_differ, _ORDERS + "test_what_does_not_end_is_ordered_anew"),
    ("archive.3", be_refused_in_silence, _ORDERS + "test_a_word_that_is_refused_is_told_of"),
    (
        "archive.3",
        compare_all_again,
        _ORDERS + "test_where_nothing_is_new_segments_are_not_looked_at",
    ),
    (
        "archive.3",
        name_too_many_segments,
        _COMMANDS + "test_new_segments_are_larger_where_they_would_be_too_many",
    ),
    ("archive.4", read_a_megabyte_only, _FILES + "test_a_log_may_have_many_compacted_segments"),
    ("archive.3", rest_before_it_is_in_place, _NODE + "test_who_has_not_what_was_decided_is_busy"),
    (
        "archive.3",
        want_what_no_member_has,
        _NODE + "test_who_goes_on_alone_has_the_segments_that_are_here",
    ),
    (
        "archive.3",
        forget_what_was_written,
        _NODE + "test_what_was_decided_survives_a_restart_of_all",
    ),
    ("archive.2", unpack_for_good, _FILES + "test_what_was_compressed_stays_so"),
    (
        "logs.7",
        merge_into_what_is_compacted,
        "tests/sequencer/test_merger.py::test_nothing_is_merged_into_what_is_copied_as_compacted",
    ),
    (
        "logs.7",
        forget_what_is_still_there,
        _FILES + "test_what_is_cut_is_never_taken_for_bytes_as_merged",
    ),
    (
        "logs.7",
        wait_in_what_others_closed,
        _COPYING + "test_what_ends_where_a_compacted_segment_ends_is_rolled",
    ),
    ("logs.7", remove_what_is_to_come, _COPIES + "test_what_was_compacted_is_copied_anew"),
    ("logs.7", take_forks_for_copies_of_before, _COPIES + "test_a_copy_of_another_log_is_refused"),
    (
        "logs.7",
        sum_up_what_is_left,
        _MERGER + "test_nothing_is_merged_into_what_is_copied_as_compacted",
    ),
    ("archive.4", name_what_is_set_aside, _FILES + "test_what_takes_the_place_of_damage_stays"),
    ("archive.4", take_what_a_fetch_left, _FILES + "test_what_a_fetch_left_is_not_taken"),
    (
        "archive.4",
        swap_while_somebody_mends,
        _NODE + "test_nothing_is_swapped_in_while_somebody_mends",
    ),
    (
        "archive.4",
        read_where_it_was,
        "tests/kafka/test_fetching.py::test_what_was_found_is_looked_up_anew_behind_a_compaction",
    ),
    (
        "logs.7",
        miss_what_comes_again,
        "tests/subscriber/test_tail_reader.py::test_what_was_compacted_may_come_again",
    ),
    (
        "logs.7",
        read_on_in_another_file,
        _FILES + "test_a_reader_follows_a_copy_that_begins_a_segment_anew",
    ),
)
"""Rule, bug, and the test that finds it."""
