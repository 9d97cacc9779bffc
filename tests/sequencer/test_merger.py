"""The merger: same instructions and session bytes give the same merged bytes, from any start."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.batch import leave_out
from samelog.format.compression import decompress
from samelog.format.errors import InvariantError
from samelog.format.positions import SessionPosition
from samelog.sequencer.merge.checked_ranges import CheckedRanges
from samelog.sequencer.merge.merger import Missing, PartitionMerger
from samelog.sequencer.state.instructions import (
    Merge,
    MergeExtras,
    Range,
    Verdict,
    VoidRecordsCommand,
)
from samelog.store.disk.files import OsFileSystem
from samelog.store.merged.log import MergedLog
from tests.examples import at_most
from tests.store.compacting import KeyedLog, rewrite
from tests.store.storage import open_merged


class Sessions:
    """Session bytes by input; what is in `lost` is not held here."""

    def __init__(self) -> None:
        self.data: dict[int, bytes] = {}
        self.lost: set[int] = set()
        self.checked = CheckedRanges()

    def read_range(self, part: Range, *, from_file: bool = False) -> bytearray | None:
        if part.input in self.lost:
            return None
        return bytearray(self.data[part.input][part.start : part.stop])


def batches(*counts: int) -> bytes:
    return b"".join(
        kernels.build_batches(
            [b"v%d" % number for number in range(count)],
            timestamps=7,
            batch_bytes=1 << 20,
            max_record_bytes=1 << 20,
        )
        for count in counts
    )


def take(number: int, data: bytes, start: int = 0) -> Range:
    scan = kernels.scan(data)
    stop = start + len(data)
    return Range(number, 0, 0, start, stop, scan.records, len(data), scan.digest)


def merge(base: int, *ranges: Range, roll: bool = False) -> Merge:
    return Merge(1, base, 5, 1000, roll, list(ranges))


def open_log(path: Path) -> MergedLog:
    return MergedLog.open(
        OsFileSystem(), str(path / "t-0"), topic="t", topic_id="a" * 32, partition=0
    )


def make(path: Path, sessions: Sessions) -> PartitionMerger:
    return PartitionMerger(1, open_log(path), sessions)


def run(merger: PartitionMerger) -> None:
    while merger.step():
        pass


def content(merger: PartitionMerger) -> bytes:
    log = merger.log
    return b"".join(
        log.read(part.base_offset, 0, part.size) for part in log.segments() if part.size
    )


@pytest.fixture
def sessions() -> Sessions:
    sessions = Sessions()
    sessions.data = {1: batches(3, 2), 2: batches(4)}
    return sessions


def instructions(sessions: Sessions) -> list[Merge]:
    first = take(1, batches(3))
    second = take(2, sessions.data[2])
    third = take(1, batches(2), start=first.stop)
    return [merge(0, first, second), merge(7, third)]


def test_ranges_are_copied_with_offsets_and_epoch(tmp_path: Path, sessions: Sessions) -> None:
    merger = make(tmp_path, sessions)
    for instruction in instructions(sessions):
        merger.enqueue(instruction)
    run(merger)
    assert merger.log.next_offset == 9
    records = kernels.decode_records(
        content(merger), 0, len(content(merger)), "t", 0, lambda *_: b""
    )
    assert [record.offset for record in records] == list(range(9))
    assert not list(merger.pending)


def test_missing_bytes_stall_and_go_on_when_they_come(tmp_path: Path, sessions: Sessions) -> None:
    merger = make(tmp_path, sessions)
    sessions.lost.add(2)
    for instruction in instructions(sessions):
        merger.enqueue(instruction)
    run(merger)
    assert merger.log.next_offset == 3
    assert merger.missing is not None
    assert merger.missing.offset == 7
    sessions.lost.clear()
    run(merger)
    assert merger.missing is None
    assert merger.log.next_offset == 9


def test_other_bytes_than_planned_are_never_merged(tmp_path: Path, sessions: Sessions) -> None:
    merger = make(tmp_path, sessions)
    (first, second) = instructions(sessions)
    sessions.data[2] = batches(4).replace(b"v3", b"w3")
    merger.enqueue(first)
    merger.enqueue(second)
    run(merger)
    assert merger.log.next_offset == 3
    assert merger.missing is not None


def test_an_instruction_rolls_the_segment(tmp_path: Path, sessions: Sessions) -> None:
    merger = make(tmp_path, sessions)
    first, second = instructions(sessions)
    merger.enqueue(first)
    merger.enqueue(merge(7, *second.ranges, roll=True))
    run(merger)
    assert [segment.base_offset for segment in merger.log.segments()] == [0, 7]


def test_skipped_ranges_add_nothing(tmp_path: Path, sessions: Sessions) -> None:
    merger = make(tmp_path, sessions)
    skipped = Range(1, 0, 0, 0, 10, 0, 0, 1, int(Verdict.DUPLICATE))
    merger.enqueue(merge(0, skipped))
    merger.enqueue(merge(0, take(2, sessions.data[2])))
    run(merger)
    assert merger.log.next_offset == 4


def test_instructions_out_of_order_break_an_invariant(tmp_path: Path, sessions: Sessions) -> None:
    merger = make(tmp_path, sessions)
    merger.enqueue(instructions(sessions)[0])
    with pytest.raises(InvariantError):
        merger.enqueue(merge(99, take(2, sessions.data[2])))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.data())
@settings(
    max_examples=at_most(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_restart_anywhere_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], data: st.DataObject
) -> None:
    sessions = Sessions()
    sessions.data = {1: batches(*counts)}
    whole = make(tmp_path_factory.mktemp("whole"), sessions)
    whole.enqueue(merge(0, take(1, sessions.data[1])))
    run(whole)
    expected = content(whole)

    path = tmp_path_factory.mktemp("restarted")
    held = data.draw(st.integers(0, len(counts)), label="batches already merged")
    log = open_log(path)
    prefix = expected[: len(batches(*counts[:held]))]
    if prefix:
        log.append_copy(0, 0, prefix)
    merger = PartitionMerger(1, log, sessions)
    merger.enqueue(merge(0, take(1, sessions.data[1])))
    run(merger)
    assert content(merger) == expected
    assert merger.log.checksum == whole.log.checksum


def test_append_time_comes_from_the_instruction(tmp_path: Path, sessions: Sessions) -> None:
    merger = make(tmp_path, sessions)
    data = sessions.data[2]
    for base, append_ms, stamp in ((0, 5000, True), (4, 6000, False)):
        extras = MergeExtras(stamp=stamp)
        merger.enqueue(Merge(1, base, 5, append_ms, False, [take(2, data)], extras=extras))
    run(merger)
    merged = content(merger)
    records = kernels.decode_records(merged, 0, len(merged), "t", 0, decompress)
    assert [(r.timestamp, r.timestamp_type) for r in records] == [(5000, 1)] * 4 + [(7, 0)] * 4
    assert kernels.scan(merged).error is None


def test_an_inputs_waiting_places_are_those_of_the_queue(tmp_path: Path) -> None:
    first, second = batches(2), batches(1)
    sessions = Sessions()
    sessions.data = {1: first + second, 2: first}
    merger = make(tmp_path, sessions)
    sessions.lost = {2}
    merger.enqueue(merge(0, take(1, first)))
    merger.enqueue(merge(2, take(2, first), take(1, second, len(first))))
    assert list(merger.starts(1)) == [(0, 0, 0), (0, 0, len(first))]
    assert list(merger.starts(2)) == [(0, 0, 0)]
    run(merger)
    assert list(merger.starts(1)) == [(0, 0, len(first))]
    sessions.lost = set()
    run(merger)
    assert not merger.pending
    assert (list(merger.starts(1)), list(merger.starts(2))) == ([], [])


def test_waiting_places_go_with_the_queue(tmp_path: Path) -> None:
    merger = make(tmp_path, Sessions())
    merger.enqueue(merge(0, take(1, batches(2))))
    merger.drop_pending()
    assert list(merger.starts(1)) == []


def test_what_a_restart_finds_merged_is_not_needed(tmp_path: Path) -> None:
    first, second, other = batches(2), batches(1), batches(3)
    sessions = Sessions()
    sessions.data = {1: first + second, 2: other}
    planned = [
        merge(0, take(1, first)),
        merge(2, take(2, other), take(1, second, len(first))),
    ]
    before = make(tmp_path, sessions)
    for instruction in planned:
        before.enqueue(instruction)
    before.step()
    before.step()  # all but the last range
    again = PartitionMerger(1, before.log, sessions)
    for instruction in planned:
        again.enqueue(instruction)
    assert again.needed(1, 0) == SessionPosition(0, 0, len(first))
    assert again.needed(1, 1) is None
    assert again.needed(2, 0) is None


def test_void_batches_stand_for_what_nobody_has(tmp_path: Path, sessions: Sessions) -> None:
    merger = make(tmp_path, sessions)
    first, second = instructions(sessions)
    merger.enqueue(first)
    merger.enqueue(second)
    sessions.lost.add(2)
    run(merger)
    assert (merger.log.next_offset, merger.missing is None) == (3, False)
    merger.voids[3] = VoidRecordsCommand(1, 3, 7, segment=0, epoch=5, timestamp=9, at_ms=1)
    run(merger)
    assert (merger.log.next_offset, merger.missing) == (9, None)
    assert not list(merger.pending)
    records = kernels.decode_records(content(merger), 0, len(content(merger)), "t", 0, decompress)
    assert [record.offset for record in records] == [0, 1, 2, 7, 8]


def test_records_that_were_ordered_may_be_void_before_they_are_executed(
    tmp_path: Path, sessions: Sessions
) -> None:
    """A node starts again: it knows the void before it has the instruction."""
    merger = make(tmp_path, sessions)
    merger.voids[7] = VoidRecordsCommand(1, 7, 9, segment=0, epoch=5, timestamp=9, at_ms=1)
    for instruction in instructions(sessions):
        merger.enqueue(instruction)
    run(merger)
    assert merger.log.next_offset == 9


def test_void_batches_need_no_instruction(tmp_path: Path, sessions: Sessions) -> None:
    """It may be executed, and its bytes lost later."""
    merger = make(tmp_path, sessions)
    merger.voids[0] = VoidRecordsCommand(1, 0, 4, segment=0, epoch=5, timestamp=9, at_ms=1)
    run(merger)
    assert merger.log.next_offset == 4


def test_a_checksum_is_remembered_where_it_is_asked_for(tmp_path: Path, sessions: Sessions) -> None:
    merger = make(tmp_path, sessions)
    first, second = instructions(sessions)
    assert merger.sample_at(0)
    merger.enqueue(first)
    merger.enqueue(second)
    assert not merger.sample_at(9)
    run(merger)
    assert merger.samples == {0: 0, 9: merger.log.checksum}
    assert not merger.sample_at(7)  # it is beyond
    assert (merger.sample_at(9), merger.to_sample) == (True, set())


def test_nothing_is_merged_into_what_is_copied_as_compacted(
    tmp_path: Path, sessions: Sessions
) -> None:
    """Nor is its checksum that of the log."""
    merger = make(tmp_path, sessions)
    peer = KeyedLog(open_merged(tmp_path / "peer"))
    for number in range(9):
        peer.append([(b"key %d" % (number % 5), b"value")])
    peer.log.roll()
    (wanted,) = rewrite(peer.log, 9)
    peer.log.swap([wanted])
    data = peer.log.read(0, 0, 1 << 20)
    piece = kernels.scan(data, max_batch_bytes=1 << 20, max_batches=1).end
    merger.log.begin_copy(wanted)
    merger.log.append_copy(0, 0, data[:piece])
    for instruction in instructions(sessions):
        merger.enqueue(instruction)
    assert merger.step() == 0
    assert merger.missing == Missing(1, 9, None)
    merger.log.append_copy(0, piece, data[piece:])
    assert not merger.sample_at(9)
    run(merger)
    merger.log.roll()
    assert merger.sample_at(9)
    assert merger.samples == {9: peer.log.checksum}
    merger.log.close()
    peer.log.close()


def leaving(base: int, data: bytes, runs: list[int]) -> Merge:
    """A range of input 1 without some records."""
    left, scan = leave_out(data, runs), kernels.scan(data)
    records = kernels.scan(left).records
    part = Range(1, 0, 0, 0, len(data), records, len(left), scan.digest, Verdict.LEAVE_OUT, 0)
    return Merge(1, base, 5, 1000, False, [part], extras=MergeExtras(left_out=[runs]))


def values_of(merger: PartitionMerger) -> list[bytes | None]:
    data = content(merger)
    return [each.value for each in kernels.decode_records(data, 0, len(data), "t", 0, decompress)]


def test_what_is_named_is_left_out_of_a_range_of_batches(
    tmp_path: Path, sessions: Sessions
) -> None:
    merger = make(tmp_path, sessions)
    merger.enqueue(leaving(0, sessions.data[1], [1, 3]))
    run(merger)
    assert merger.log.next_offset == 2
    assert values_of(merger) == [b"v0", b"v1"]


def test_a_range_of_which_nothing_stays_is_executed_without_its_bytes(
    tmp_path: Path, sessions: Sessions
) -> None:
    sessions.lost.add(1)
    merger = make(tmp_path, sessions)
    merger.enqueue(leaving(0, sessions.data[1], [0, 5]))
    run(merger)
    assert not list(merger.pending)
    assert merger.missing is None


def test_the_end_of_what_stays_is_appended_after_a_restart(
    tmp_path: Path, sessions: Sessions
) -> None:
    for name in ("whole", "again"):
        (tmp_path / name).mkdir()
    whole, again = make(tmp_path / "whole", sessions), make(tmp_path / "again", sessions)
    instruction = leaving(0, sessions.data[1], [2, 1])
    whole.enqueue(instruction)
    run(whole)
    first = leave_out(batches(3), [2, 1])
    again.log.append(first, base_offset=0, leader_epoch=5)
    again.enqueue(instruction)
    run(again)
    assert content(again) == content(whole)
