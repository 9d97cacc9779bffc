"""The planner: fair, bounded, cut at batches, dedup'ed, and consistent with what the state machine
accepts.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.batch import leave_out, runs_of
from samelog.format.compression import decompress
from samelog.format.dedup import dedup_producer_id
from samelog.format.positions import SessionPosition
from samelog.sequencer.merge.checked_ranges import CheckedRanges
from samelog.sequencer.merge.drafts import Draft, PlannerLimits
from samelog.sequencer.merge.filters import GivenBatch, MergeFilter
from samelog.sequencer.merge.in_flight import MemberFlight
from samelog.sequencer.merge.planner import Planner, majority_place
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Merge, Range, Verdict
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.keys import KeyedPartition
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    Input,
    OpenInputCommand,
    OpenRunCommand,
)
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.store.disk.files import DiskFault
from tests.examples import at_most

TERM = 3


def records(
    *values: bytes, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1
) -> bytes:
    return kernels.build_batches(
        list(values),
        timestamps=5,
        batch_bytes=1 << 20,
        max_record_bytes=1 << 20,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


class _PlannedRanges(CheckedRanges):
    """Checks that what is kept for the merger are a range's bytes in these files."""

    def __init__(self, files: dict[tuple[int, int, int], bytes]) -> None:
        super().__init__()
        self.files = files

    def keep(self, part: Range, data: bytearray) -> None:
        assert data == self.files[part.input, part.run, part.roll][part.start : part.stop]
        assert kernels.scan(data).digest == part.digest
        super().keep(part, data)


class Bytes:
    """Session logs in memory: (input, run, roll) -> bytes, and which files are sealed."""

    def __init__(self) -> None:
        self.files: dict[tuple[int, int, int], bytes] = {}
        self.sealed: set[tuple[int, int, int]] = set()
        self.checked: CheckedRanges = _PlannedRanges(self.files)

    def put(self, number: int, data: bytes, *, run: int = 0, roll: int = 0) -> None:
        self.files[number, run, roll] = self.files.get((number, run, roll), b"") + data

    def end(self, number: int) -> SessionPosition:
        run, roll = max((key[1], key[2]) for key in self.files if key[0] == number)
        return SessionPosition(run, roll, len(self.files[number, run, roll]))

    def ends(self) -> dict[int, SessionPosition]:
        return {number: self.end(number) for number, _, _ in self.files}

    def sealed_length(self, number: int, place: SessionPosition) -> int | None:
        key = (number, place.run, place.roll)
        return len(self.files[key]) if key in self.sealed else None

    def read(self, number: int, place: SessionPosition, stop: int) -> bytearray:
        return bytearray(self.files[number, place.run, place.roll][place.byte : stop])


class World:
    """A state machine with sessions a and b on one topic, a planner, and their bytes."""

    def __init__(self, sessions: str = "ab", **limits: int) -> None:
        self.machine = StateMachine()
        self.machine.apply(CreateTopicCommand("t", "flights", 1, {}, 0))
        self.bytes = Bytes()
        self.planner = Planner(self.machine, PlannerLimits(**limits))
        self.index = 0
        self.merged: list[Merge] = []
        for name in sessions:
            self.open(name)

    def open(self, name: str, dedup_id: str | None = None, base: int | None = None) -> None:
        self.machine.apply(OpenRunCommand(name, name, "i", 0, name, dedup_id, base))
        self.machine.apply(OpenInputCommand(name, "t", 0))

    def plan(self) -> list[Merge]:
        merges = self.planner.plan(self.bytes.ends(), self.bytes, term=TERM, now_ms=1000)
        if merges:
            self.index += 1
            self.planner.proposed(self.index, merges)
        return merges

    def commit(self, merges: list[Merge], index: int | None = None) -> None:
        for merge in merges:
            outcome = self.machine.apply(merge)
            assert not isinstance(outcome, Rejection), outcome
            self.merged.append(merge)
        self.planner.applied(self.index if index is None else index)

    def run_dry(self) -> None:
        while merges := self.plan():
            self.commit(merges)

    def filter_by(self, *filters: MergeFilter) -> None:
        """As if the topic had settings that filters are about."""
        self.machine.state.keys.by_partition[1] = KeyedPartition()
        self.planner.filters = filters
        self.planner.reset()


def test_one_record_is_an_instruction() -> None:
    world = World("a")
    data = records(b"x")
    world.bytes.put(1, data)
    (merge,) = world.plan()
    assert (merge.base_offset, merge.epoch, merge.append_ms) == (0, TERM, 1000)
    part = merge.ranges[0]
    assert (part.start, part.stop, part.records, part.size) == (0, len(data), 1, len(data))
    assert part.digest == kernels.scan(data).digest
    world.commit([merge])
    assert world.plan() == []


def test_eight_small_entries_may_be_in_flight() -> None:
    world = World("a")
    planned = list[list[Merge]]()
    while world.planner.in_flight.has_room and len(planned) < 20:
        world.bytes.put(1, records(b"x"))
        planned.append(world.plan())
    assert [merge.base_offset for (merge,) in planned] == [*range(8)]
    world.commit(planned[0], 1)
    assert world.planner.in_flight.has_room
    for index, merges in enumerate(planned[1:], 2):
        world.commit(merges, index)
    assert world.machine.state.partitions.by_number[1].next_offset == 8


def test_entries_in_flight_are_bounded_by_their_bytes() -> None:
    """The bound of a group, and that of its member, leave room for a whole entry."""
    limits = {"entry_bytes": 4_000, "input_bytes": 4_000, "in_flight_bytes": 8_000}
    member = MemberFlight(10_000)
    worlds = [World("a") for _ in range(3)]
    batch = records(bytes(2_500))
    for world in worlds:
        world.planner = Planner(world.machine, PlannerLimits(**limits), member=member)
        world.bytes.put(1, 9 * batch)
        while world.planner.in_flight.has_room:
            world.plan()
    assert [world.index for world in worlds] == [2, 1, 1]
    assert member.bytes == 4 * len(batch)
    worlds[0].planner.reset()
    assert member.bytes == 2 * len(batch)
    assert worlds[0].planner.in_flight.has_room


def numbered(number: int) -> bytes:
    """A batch of an idempotent producer."""
    return records(b"x", producer_id=7, producer_epoch=0, base_sequence=number)


def test_speculation_ends_with_the_last_entry_in_flight_that_concerns_it() -> None:
    """An entry of another partition is still in flight when the state changes by other means."""
    world = World("a")
    world.machine.apply(CreateTopicCommand("u", "weather", 1, {}, 0))
    world.machine.apply(OpenInputCommand("a", "u", 0))
    world.bytes.put(1, numbered(0))
    first = world.plan()
    world.bytes.put(2, records(b"y"))
    world.plan()
    world.commit(first, 1)
    world.machine.state.partitions.by_number[1].next_offset = 10
    world.machine.state.producers.batches.clear()
    world.bytes.put(1, numbered(0))
    (merge,) = world.plan()
    assert merge.base_offset == 10
    assert [part.verdict for part in merge.ranges] == [Verdict.TAKE]


def test_speculation_lasts_while_an_entry_that_concerns_it_is_in_flight() -> None:
    world = World("a")
    world.bytes.put(1, numbered(0))
    first = world.plan()
    world.bytes.put(1, numbered(1))
    second = world.plan()
    world.commit(first, 1)
    world.bytes.put(1, numbered(1))
    third = world.plan()
    assert [part.verdict for merge in third for part in merge.ranges] == [Verdict.DUPLICATE]
    assert third[0].base_offset == 2
    world.commit(second, 2)
    world.commit(third, 3)
    assert world.machine.state.sessions.inputs[1].place == world.bytes.end(1)


def test_nothing_is_planned_behind_a_rejection() -> None:
    """What is in flight behind a rejected entry counts on it, and is rejected as well."""
    world = World("a")
    for _ in range(2):
        world.bytes.put(1, records(b"x"))
        world.plan()
    world.machine.state.partitions.by_number[1].next_offset = 10
    for index in (1, 2):
        assert index == 1 or not world.planner.in_flight.has_room
        world.planner.drain()
        world.planner.applied(index)
    assert world.planner.in_flight.has_room
    (merge,) = world.plan()
    assert (merge.base_offset, merge.next_offset - merge.base_offset) == (10, 2)


def test_a_reset_forgets_what_was_proposed() -> None:
    world = World("a")
    world.bytes.put(1, records(b"x"))
    first = world.plan()
    assert world.plan() == []
    world.planner.reset()
    assert world.plan() == first


def test_a_flood_does_not_starve_others() -> None:
    world = World("ab", input_bytes=10_000, entry_bytes=40_000)
    for _ in range(100):
        world.bytes.put(1, records(bytes(2_000)))
    world.bytes.put(2, records(b"small"))
    inputs = {part.input for merge in world.plan() for part in merge.ranges}
    assert inputs == {1, 2}


def test_an_entry_is_bounded_but_takes_at_least_one_batch() -> None:
    world = World("a", input_bytes=1_000, entry_bytes=1_000)
    big = records(bytes(50_000))
    world.bytes.put(1, big + big)
    (merge,) = world.plan()
    assert merge.size == len(big)


def test_ranges_go_on_in_the_next_file() -> None:
    world = World("a")
    world.bytes.put(1, records(b"x"))
    world.bytes.sealed.add((1, 0, 0))
    world.bytes.put(1, records(b"y"), roll=1)
    world.run_dry()
    assert [(part.roll, part.start) for part in world.merged[0].ranges] == [(0, 0), (1, 0)]


def test_an_empty_next_file_is_nothing_to_plan() -> None:
    world = World("a")
    world.bytes.put(1, records(b"x"))
    world.run_dry()
    world.bytes.sealed.add((1, 0, 0))
    world.bytes.put(1, b"", roll=1)
    assert world.plan() == []
    entry = world.machine.state.sessions.inputs[1]
    assert world.planner.place(entry) == entry.place


def test_a_file_that_is_not_sealed_is_not_left_behind() -> None:
    world = World("a")
    world.bytes.put(1, records(b"x"))
    world.bytes.put(1, records(b"y"), roll=1)
    assert world.plan() == []


def test_nothing_is_planned_of_a_closing_run() -> None:
    world = World("a")
    world.bytes.put(1, records(b"x"))
    world.planner.closing("a")
    assert world.plan() == []
    world.machine.apply(CloseRun("a", "a"))
    world.planner.run_changed("a")
    assert world.plan() == [], "nor of a closed one"


def test_empty_files_in_between_are_stepped_over() -> None:
    world = World("a")
    world.bytes.put(1, records(b"x"))
    world.bytes.put(1, b"", roll=1)
    world.bytes.sealed.update({(1, 0, 0), (1, 0, 1)})
    world.run_dry()
    world.bytes.put(1, records(b"y"), roll=2)
    world.run_dry()
    places = [(part.roll, part.start) for merge in world.merged for part in merge.ranges]
    assert places == [(0, 0), (2, 0)]


def test_segments_roll_by_size() -> None:
    world = World("a", segment_bytes=5_000, input_bytes=3_000)
    for _ in range(6):
        world.bytes.put(1, records(bytes(2_500)))
    world.run_dry()
    assert [merge.roll for merge in world.merged] == [False, True, True, True, True, True]


def test_segments_roll_by_the_age_that_their_topic_sets() -> None:
    world = World("a", segment_ms=1_000)
    topic = world.machine.state.topics.named("flights")
    assert topic is not None
    for now_ms, limit_ms in (
        (1000, "500"),
        (1500, "500"),
        (1501, "500"),
        (2400, "900"),
        (2500, ""),
    ):
        topic.settings = {"segment.ms": limit_ms} if limit_ms else {}
        world.bytes.put(1, records(b"x"))
        ends = world.bytes.ends()
        world.commit(world.planner.plan(ends, world.bytes, term=TERM, now_ms=now_ms))
    assert [merge.roll for merge in world.merged] == [False, False, True, False, False]


def test_append_time_never_falls_whatever_the_clock_says() -> None:
    world = World("a")
    topic = world.machine.state.topics.named("flights")
    assert topic is not None
    topic.settings["message.timestamp.type"] = "LogAppendTime"
    for now_ms in (1000, 400, 1001):
        world.bytes.put(1, records(b"x"))
        ends = world.bytes.ends()
        world.commit(world.planner.plan(ends, world.bytes, term=TERM, now_ms=now_ms))
    assert [merge.append_ms for merge in world.merged] == [1000, 1000, 1001]
    assert all(merge.extras and merge.extras.stamp for merge in world.merged)


def test_damaged_bytes_are_reported_and_not_planned() -> None:
    world = World("a")
    data = bytearray(records(b"x"))
    data[16] = 1
    world.bytes.put(1, bytes(data))
    assert world.plan() == []
    assert 1 in world.planner.damaged


def test_an_input_that_cannot_be_read_does_not_hold_up_the_others() -> None:
    world = World("ab")
    world.bytes.put(1, records(b"x"))
    world.bytes.put(2, records(b"y"))
    read = world.bytes.read

    def failing(number: int, place: SessionPosition, stop: int) -> bytearray:
        if number == 1:
            raise DiskFault("log.0.0", "read", errno.EIO)
        return read(number, place, stop)

    world.bytes.read = failing  # type: ignore[method-assign]
    (merge,) = world.plan()
    assert [part.input for part in merge.ranges] == [2]
    assert "Input/output error" in world.planner.damaged[1]
    world.commit([merge])
    assert world.plan() == []
    world.bytes.read = read  # type: ignore[method-assign]
    world.planner.reset()
    world.run_dry()
    assert world.machine.state.partitions.by_number[1].next_offset == 2


def test_several_inputs_that_cannot_be_read_are_each_left_out() -> None:
    world = World("abc")
    for number in (1, 2, 3):
        world.bytes.put(number, records(b"x"))
    read = world.bytes.read

    def failing(number: int, place: SessionPosition, stop: int) -> bytearray:
        if number < 3:
            raise DiskFault("log.0.0", "read", errno.EIO)
        return read(number, place, stop)

    world.bytes.read = failing  # type: ignore[method-assign]
    (merge,) = world.plan()
    assert [part.input for part in merge.ranges] == [3]
    assert set(world.planner.damaged) == {1, 2}


@pytest.mark.parametrize("at", [17, 20, 21, 60, 70])
def test_rotten_bytes_are_never_planned(at: int) -> None:
    world = World("ab")
    good = records(b"good")
    rotten = bytearray(records(b"rotten", b"more"))
    rotten[at] ^= 1
    world.bytes.put(1, good + bytes(rotten))
    world.bytes.put(2, records(b"other"))
    world.run_dry()
    planned = [part for merge in world.merged for part in merge.ranges]
    assert sorted((part.input, part.stop) for part in planned)[0] == (1, len(good))
    assert {part.input for part in planned} == {1, 2}
    assert list(world.planner.damaged) == [1]


def test_twins_merge_each_id_once_in_order() -> None:
    world = World("")
    producer = dedup_producer_id("feed")
    for name in "ab":
        world.open(name, "feed", 10)

    def twin(number: int, first: int, count: int) -> None:
        values = [b"%d" % id_ for id_ in range(first, first + count)]
        data = records(*values, producer_id=producer, producer_epoch=0, base_sequence=first)
        world.bytes.put(number, data)

    twin(1, 10, 3)
    twin(2, 10, 2)
    world.run_dry()
    twin(2, 12, 4)
    twin(1, 13, 1)
    world.run_dry()
    twin(1, 14, 2)
    world.run_dry()
    parts = [part for merge in world.merged for part in merge.ranges]
    assert sum(part.records for part in parts) == 6
    verdicts = Verdict.TAKE, Verdict.DUPLICATE, Verdict.SLICE
    assert {Verdict(part.verdict) for part in parts} == {*verdicts}
    assert world.machine.state.watermarks.by_dedup_id["feed"] == {1: 15}


class Without:
    """A filter that leaves out records with some values."""

    def __init__(self, *values: bytes) -> None:
        self.values = values
        self.asked = 0

    def concerns(self, partition: int) -> bool:
        return partition == 1

    def is_ready(self, partition: int, next_offset: int) -> bool:
        return True

    def look_behind(self, partition: int, batches: bytes) -> bool:
        raise AssertionError("it can judge everything")

    def take_back(self) -> None:
        pass

    reset = take_back

    def look_ahead(self, draft: Draft, entry: Input, batches: Sequence[bytes]) -> None:
        pass

    def staying(self, draft: Draft, given: GivenBatch, runs: Sequence[int]) -> Sequence[int]:
        self.asked += 1
        said = [place % 2 == 0 for place, length in enumerate(runs) for _ in range(length)]
        found = kernels.decode_records(given.data, 0, len(given.data), "t", 0, decompress)
        said += [True] * (len(found) - len(said))
        return runs_of(
            stays and record.value not in self.values
            for stays, record in zip(said, found, strict=True)
        )


def test_filters_leave_records_out_and_the_instruction_names_them() -> None:
    world = World("a")
    world.filter_by(Without(b"b"), Without(b"d", b"e"))
    parts = [records(b"a", b"b"), records(b"c"), records(b"d", b"e"), records(b"f")]
    world.bytes.put(1, b"".join(parts))
    world.run_dry()
    (merge,) = world.merged
    assert merge.extras is not None
    assert merge.extras.left_out == [[1, 1, 1, 2]]
    (part,) = merge.ranges
    assert (part.verdict, part.detail, part.records) == (Verdict.LEAVE_OUT, 0, 3)
    data = b"".join(parts)
    assert part.digest == kernels.scan(data).digest
    assert part.size == len(leave_out(data, merge.extras.left_out[0]))
    assert world.machine.state.partitions.by_number[1].next_offset == 3


def test_filters_that_leave_nothing_out_change_no_instruction() -> None:
    world = World("a")
    world.filter_by(Without(b"x"))
    world.bytes.put(1, records(b"a", b"b") + records(b"c"))
    world.run_dry()
    (merge,) = world.merged
    assert merge.extras is None
    assert [part.records for part in merge.ranges] == [3]


def test_a_filter_is_asked_for_what_a_twin_brings_anew() -> None:
    world = World("")
    producer = dedup_producer_id("feed")
    for name in "ab":
        world.open(name, "feed", 0)
    world.filter_by(Without(b"2"))
    for number, count in ((1, 2), (2, 4)):
        values = [b"%d" % each for each in range(count)]
        data = records(*values, producer_id=producer, producer_epoch=0, base_sequence=0)
        world.bytes.put(number, data)
        world.run_dry()
    (merge,) = world.merged[1:]
    assert merge.extras is not None
    assert merge.extras.left_out == [[0, 3]]
    assert (merge.ranges[0].records, merge.watermarks) == (1, [("feed", 3)])


def test_a_repetition_is_not_shown_to_filters() -> None:
    world, only = World("a"), Without(b"x")
    world.filter_by(only)
    batch = records(b"v", producer_id=77, producer_epoch=0, base_sequence=0)
    world.bytes.put(1, batch + batch)
    world.run_dry()
    assert only.asked == 1


def test_what_says_which_records_stay_is_bounded() -> None:
    world = World("a", entry_runs=8)
    world.filter_by(Without(b"x"))
    world.bytes.put(1, b"".join(records(b"a", b"x", b"b", b"x") for _ in range(20)))
    world.run_dry()
    numbers = [
        sum(map(len, merge.extras.left_out)) for merge in world.merged if merge.extras is not None
    ]
    assert len(numbers) > 4
    assert max(numbers) <= 12
    assert world.machine.state.partitions.by_number[1].next_offset == 40


def test_a_producers_retry_is_skipped() -> None:
    world = World("a")
    batches = [
        records(b"v", producer_id=77, producer_epoch=0, base_sequence=number) for number in range(3)
    ]
    for number in (0, 1, 1, 2, 0):
        world.bytes.put(1, batches[number])
    world.run_dry()
    assert world.machine.state.partitions.by_number[1].next_offset == 3


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), max_size=40), st.integers(300, 5000)
)
@settings(max_examples=at_most(50), deadline=None)
def test_every_byte_is_planned_once_in_order(writes: list[tuple[int, int]], limit: int) -> None:
    world = World("abc", input_bytes=limit, entry_bytes=2 * limit)
    for number, count in writes:
        world.bytes.put(number, records(*([b"x" * 50] * count)))
    in_flight: list[tuple[int, list[Merge]]] = []
    while True:
        merges = world.plan() if world.planner.in_flight.has_room else []
        if merges:
            in_flight.append((world.index, merges))
        elif in_flight:
            index, oldest = in_flight.pop(0)
            world.commit(oldest, index)
        else:
            break
    for number, end in world.bytes.ends().items():
        assert world.machine.state.sessions.inputs[number].place == end
    assert world.machine.state.partitions.by_number[1].next_offset == sum(
        count for _, count in writes
    )


@pytest.mark.parametrize(
    ("bytes_held", "voters", "expected"),
    [([5], 1, 5), ([5], 3, None), ([5, 9], 3, 5), ([5, 9, 7], 3, 7), ([1, 2, 3, 4, 5], 5, 3)],
)
def test_majority_place(bytes_held: list[int], voters: int, expected: int | None) -> None:
    places = [SessionPosition(0, 0, byte) for byte in bytes_held]
    agreed = majority_place(places, voters)
    assert agreed == (None if expected is None else SessionPosition(0, 0, expected))
