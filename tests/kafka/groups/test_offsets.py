"""Who may commit, and how long what was committed stays."""

from __future__ import annotations

from typing import Any

import pytest

from samelog.format.steps import finished
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups.requests import Caller, OffsetCommit
from samelog.placement.values import PlacedPartition
from samelog.sequencer.state.tables.groups import CommitOffsets, CommittedOffset
from samelog.sequencer.state.tables.topics import DeleteTopicCommand
from tests.kafka.groups.group_client import Bench

WEEK_S = 7 * 24 * 3600.0


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_member_commits(bench: Bench) -> None:
    [joined] = bench.stable()
    assert bench.commit(Caller("g", joined.member_id, None, 1), offset=7) is ErrorCode.none
    assert bench.offsets() == {1: 7}


def test_a_commit_keeps_the_member_alive(bench: Bench) -> None:
    [joined] = bench.stable()
    for _ in range(4):
        bench.pass_time(8)
        assert bench.commit(Caller("g", joined.member_id, None, 1)) is ErrorCode.none


def test_commits_of_the_past_are_refused(bench: Bench) -> None:
    [old] = bench.stable()
    bench.new_member()
    caller = Caller("g", old.member_id, None, 1)
    assert bench.commit(caller) is ErrorCode.none  # before it gives its partitions away
    bench.joined(old.member_id)
    assert bench.commit(caller) is ErrorCode.illegal_generation
    assert bench.commit(Caller("g", old.member_id, None, 2)) is ErrorCode.rebalance_in_progress
    assert bench.commit(Caller("g", "nobody", None, 2)) is ErrorCode.unknown_member_id
    assert bench.commit(Caller("h", "nobody", None, 2)) is ErrorCode.illegal_generation


def test_consumers_without_a_group_may_commit_where_nobody_is_a_member(bench: Bench) -> None:
    assert bench.commit(Caller("g")) is ErrorCode.none
    assert bench.commit(Caller("")) is ErrorCode.invalid_group_id
    bench.stable()
    assert bench.commit(Caller("g")) is ErrorCode.unknown_member_id


def test_what_begins_anew_takes_no_offsets_before_its_group_has_done_so(bench: Bench) -> None:
    """Until then nobody can tell which log an offset is of; then the epoch tells."""
    table = bench.machine.state.placement
    table.partitions = {1: PlacedPartition(1, "t", 0, group=3, epoch_base=1000)}
    assert bench.commit(Caller("g"), offset=4) is ErrorCode.none
    table.resetting = {3: "r1"}
    assert bench.commit(Caller("g"), offset=5) is ErrorCode.coordinator_load_in_progress
    table.resetting = {}
    table.partitions = {1: PlacedPartition(1, "t", 0, group=3, epoch_base=1000, first_epoch=1007)}
    assert bench.commit(Caller("g"), offset=6, epoch=7) is ErrorCode.fenced_leader_epoch
    assert bench.commit(Caller("g"), offset=7, epoch=1007) is ErrorCode.none
    assert bench.offsets() == {1: 7}


def test_each_partition_has_its_own_answer(bench: Bench) -> None:
    assert bench.commit(Caller("g"), None) is ErrorCode.unknown_topic_or_partition
    assert bench.commit(Caller("g"), 1, metadata="x" * 4_097) is ErrorCode.offset_metadata_too_large
    assert bench.offsets() == {}


def test_commits_of_one_round_share_a_command(bench: Bench) -> None:
    for group in ("a", "b"):
        bench.coordinator.commit(Caller(group), [OffsetCommit(1, 5)], group)
    made = bench.coordinator.drain()
    assert [type(command) for command in made.commands] == [CommitOffsets]
    assert len(made.answers) == 2


def test_offsets_of_an_empty_group_expire(bench: Bench) -> None:
    [joined] = bench.stable()
    bench.commit(Caller("g", joined.member_id, None, 1))
    bench.pass_time(11)
    assert bench.state() == "Empty"
    bench.pass_time(WEEK_S - 120)
    assert bench.offsets() == {1: 5}
    bench.pass_time(240)
    assert bench.offsets() == {}
    bench.pass_time(120)
    assert not bench.machine.state.groups.by_id
    assert bench.state() == "Dead"


def test_simple_offsets_expire_one_by_one(bench: Bench) -> None:
    bench.commit(Caller("g"), 1)
    bench.pass_time(WEEK_S / 2)
    bench.commit(Caller("g"), 2)
    bench.pass_time(WEEK_S / 2 + 120)
    assert bench.offsets() == {2: 5}


def test_a_living_group_loses_only_what_it_does_not_subscribe_to() -> None:
    bench = Bench(max_session_timeout_ms=1 << 40)
    joined = bench.joined(bench.joined(**LONG).member_id, **LONG)
    bench.sync(joined)
    caller = Caller("g", joined.member_id, None, 1)
    for partition in (1, 3):  # of `t`, to which it subscribes, and of `u`
        bench.commit(caller, partition)
    bench.pass_time(WEEK_S + 120)
    assert bench.offsets() == {1: 5}


LONG: dict[str, Any] = {"session_timeout_ms": 1 << 40, "rebalance_timeout_ms": 1 << 40}


def test_offsets_that_are_subscribed_to_are_not_deleted(bench: Bench) -> None:
    [joined] = bench.stable()
    caller = Caller("g", joined.member_id, None, 1)
    for partition in (1, 3):
        bench.commit(caller, partition)
    errors = bench.answer(bench.coordinator.delete_offsets, "g", [1, 3])
    assert errors == (ErrorCode.group_subscribed_to_topic, ErrorCode.none)
    assert bench.offsets() == {1: 5}
    bench.answer(bench.coordinator.leave, [Caller("g", joined.member_id)])
    assert bench.answer(bench.coordinator.delete_offsets, "g", [1]) == (ErrorCode.none,)
    assert bench.offsets() == {}
    assert bench.answer(bench.coordinator.delete_offsets, "none", [1]) == (
        ErrorCode.group_id_not_found,
    )


def test_a_group_that_commits_again_after_it_was_forgotten_goes_on(bench: Bench) -> None:
    bench.stable()
    bench.pass_time(11 + 240)
    assert bench.state() == "Dead"
    assert bench.commit(Caller("g")) is ErrorCode.none
    assert bench.stable()[0].generation == 1


def test_a_group_that_an_administrator_made_is_there(bench: Bench) -> None:
    bench.machine.apply(
        CommitOffsets([("made", [(1, CommittedOffset(5, -1, "", 0))])], only_empty=True)
    )
    assert bench.state("made") == "Empty"
    listed = finished(bench.answer(bench.coordinator.list_groups))
    assert [each.group_id for each in listed] == ["made"]
    assert bench.answer(bench.coordinator.delete, ["made"]) == (ErrorCode.none,)
    assert bench.state("made") == "Dead"


def test_a_deleted_topic_leaves_no_offsets(bench: Bench) -> None:
    bench.commit(Caller("g"), 1)
    bench.machine.apply(DeleteTopicCommand("t1"))
    assert bench.offsets() == {}
    bench.pass_time(240)
    assert not bench.machine.state.groups.by_id
