"""The classic protocol, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format.consumer_protocol import assigned_partitions, subscribed_topics
from samelog.format.steps import finished
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups.requests import Caller, Sync
from samelog.sequencer.state.tables.groups import CommitOffsets, CommittedOffset
from tests.kafka.groups.group_client import Bench, subscription


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- joining ------------------------------------------------------------------------------------


def test_a_new_member_first_gets_an_id_that_is_then_accepted(bench: Bench) -> None:
    first = bench.joined()
    assert (first.error_code, first.member_id) == (ErrorCode.member_id_required, "id1")
    joined = bench.joined("id1")
    assert (joined.error_code, joined.generation, joined.leader) == (ErrorCode.none, 1, "id1")
    assert joined.members == (("id1", None, subscription("t")),)
    assert bench.joined("somebody").error_code is ErrorCode.unknown_member_id


def test_old_clients_join_in_one_step(bench: Bench) -> None:
    assert bench.joined(needs_known_id=False).generation == 1


def test_an_id_that_is_not_used_is_forgotten(bench: Bench) -> None:
    bench.joined()
    bench.pass_time(11)
    assert bench.joined("id1").error_code is ErrorCode.unknown_member_id


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.invalid_session_timeout),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"group": ""}, ErrorCode.invalid_group_id),
        ({"protocols": []}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
    ],
)
def test_bad_joins_are_refused(bench: Bench, more: dict[str, Any], error: ErrorCode) -> None:
    assert bench.joined(**more).error_code is error


def test_members_must_have_a_protocol_in_common(bench: Bench) -> None:
    bench.stable()
    assert (
        bench.joined(protocols=[("other", b"")]).error_code is ErrorCode.inconsistent_group_protocol
    )
    assert bench.joined(protocol_type="connect").error_code is ErrorCode.inconsistent_group_protocol


def test_the_protocol_that_most_like_best_is_taken() -> None:
    bench = Bench(initial_rebalance_delay_ms=1_000)
    waiters = [
        bench.join(needs_known_id=False, protocols=[(name, b"") for name in names])
        for names in (["a", "b", "c"], ["b", "a"], ["c", "b", "a"])
    ]
    bench.pass_time(4)
    assert {bench.answers[waiter].protocol for waiter in waiters} == {"b"}


def test_a_group_may_be_full() -> None:
    bench = Bench(max_size=2)
    bench.stable(2)
    assert bench.joined().error_code is ErrorCode.group_max_size_reached


def test_metadata_is_bounded() -> None:
    bench = Bench(group_bytes=100)
    assert (
        bench.joined(protocols=[("range", bytes(101))]).error_code
        is ErrorCode.group_max_size_reached
    )


def test_the_first_rebalance_waits_for_those_who_start_a_little_later() -> None:
    bench = Bench(initial_rebalance_delay_ms=3_000)
    first = bench.join(needs_known_id=False)
    bench.pass_time(2)
    second = bench.join(needs_known_id=False)
    bench.pass_time(2)
    assert not bench.answers
    bench.pass_time(2)
    assert bench.answers[first].generation == bench.answers[second].generation == 1


def test_members_that_stay_are_told_and_join_again(bench: Bench) -> None:
    [old] = bench.stable()
    name, waiter = bench.new_member()
    assert bench.heartbeat(old) is ErrorCode.rebalance_in_progress
    assert waiter not in bench.answers
    again = bench.joined(old.member_id)
    assert again.generation == bench.answers[waiter].generation == 2
    assert {member for member, _, _ in again.members} == {old.member_id, name}
    assert bench.answers[waiter].members == ()


def test_a_member_that_does_not_join_again_is_dropped_after_the_rebalance_timeout(
    bench: Bench,
) -> None:
    [old] = bench.stable()
    name, waiter = bench.new_member()
    for _ in range(6):
        assert bench.heartbeat(old) is ErrorCode.rebalance_in_progress
        bench.pass_time(5)
    bench.pass_time(1)
    assert [member for member, _, _ in bench.answers[waiter].members] == [name]
    assert bench.heartbeat(old) is ErrorCode.unknown_member_id


def test_a_member_that_asks_twice_is_answered_once_with_the_generation(bench: Bench) -> None:
    [old] = bench.stable()
    name, first = bench.new_member()
    second = bench.join(name)
    assert bench.answers[first].error_code is ErrorCode.rebalance_in_progress
    bench.join(old.member_id)
    assert bench.answers[second].generation == 2


def test_joining_again_without_a_change_changes_nothing(bench: Bench) -> None:
    leader, other = bench.stable(2)
    assert bench.joined(other.member_id).generation == leader.generation
    assert bench.state() == "Stable"
    bench.join(other.member_id, protocols=[("range", subscription("t", "u"))])
    assert bench.state() == "PreparingRebalance"


def test_a_leader_that_joins_again_wants_a_rebalance(bench: Bench) -> None:
    leader, _ = bench.stable(2)
    bench.join(leader.member_id)
    assert bench.state() == "PreparingRebalance"


# --- syncing ------------------------------------------------------------------------------------


def test_followers_wait_for_the_leader(bench: Bench) -> None:
    [old] = bench.stable()
    name, waiter = bench.new_member()
    leader = bench.joined(old.member_id)
    waits = bench.sync(bench.answers[waiter])
    assert waits not in bench.answers
    assert bench.state() == "CompletingRebalance"
    bench.sync(leader, **{name: b"mine"})
    assert bench.answers[waits].assignment == b"mine"
    late = bench.sync(bench.answers[waiter])
    assert bench.answers[late].assignment == b"mine"


def test_who_is_not_named_gets_an_empty_assignment(bench: Bench) -> None:
    joined = bench.joined(bench.joined().member_id)
    assert bench.answers[bench.sync(joined)].assignment == b""


def test_syncs_of_others_are_refused(bench: Bench) -> None:
    [joined] = bench.stable()
    for caller, error in (
        (Caller("g", "nobody", None, 1), ErrorCode.unknown_member_id),
        (Caller("g", joined.member_id, None, 9), ErrorCode.illegal_generation),
        (Caller("h", joined.member_id, None, 1), ErrorCode.unknown_member_id),
    ):
        assert bench.answer(bench.coordinator.sync, Sync(caller=caller)).error_code is error
    caller = Caller("g", joined.member_id, None, 1)
    wrong = Sync(caller=caller, protocol_type="connect")
    assert (
        bench.answer(bench.coordinator.sync, wrong).error_code
        is ErrorCode.inconsistent_group_protocol
    )


def test_a_sync_that_waits_is_interrupted_by_the_next_rebalance(bench: Bench) -> None:
    [old] = bench.stable()
    _, waiter = bench.new_member()
    bench.join(old.member_id)
    waits = bench.sync(bench.answers[waiter])
    bench.new_member()
    assert bench.answers[waits].error_code is ErrorCode.rebalance_in_progress


def test_a_leader_that_never_assigns_is_dropped(bench: Bench) -> None:
    [old] = bench.stable()
    name, waiter = bench.new_member()
    leader = bench.joined(old.member_id)
    for _ in range(6):
        assert bench.heartbeat(leader) is ErrorCode.none
        bench.sync(bench.answers[waiter])
        bench.pass_time(5)
    bench.pass_time(1)
    assert bench.heartbeat(leader) is ErrorCode.unknown_member_id
    assert bench.joined(name).leader == name


# --- staying and leaving ------------------------------------------------------------------------


def test_heartbeats_of_others_are_refused(bench: Bench) -> None:
    [joined] = bench.stable()
    for caller, error in (
        (Caller("g", joined.member_id, None, 1), ErrorCode.none),
        (Caller("g", joined.member_id, None, 0), ErrorCode.illegal_generation),
        (Caller("g", "nobody", None, 1), ErrorCode.unknown_member_id),
        (Caller("h", joined.member_id, None, 1), ErrorCode.unknown_member_id),
    ):
        assert bench.answer(bench.coordinator.heartbeat, caller) is error


def test_a_silent_member_is_lost_after_its_session_timeout(bench: Bench) -> None:
    leader, other = bench.stable(2)
    bench.pass_time(9)
    bench.heartbeat(leader)
    bench.pass_time(2)
    assert bench.heartbeat(other) is ErrorCode.unknown_member_id
    assert bench.heartbeat(leader) is ErrorCode.rebalance_in_progress


def test_many_that_are_lost_together_take_one_entry(bench: Bench) -> None:
    bench.stable(20)
    before = bench.entries
    bench.pass_time(15)
    assert bench.state() == "Empty"
    assert bench.entries == before + 1


def test_members_leave_by_id_or_by_instance(bench: Bench) -> None:
    [joined] = bench.stable()
    assert bench.join(instance="i1")
    errors = bench.answer(
        bench.coordinator.leave,
        [Caller("g", joined.member_id), Caller("g", "", "i1"), Caller("g", "nobody")],
    )
    assert errors == (ErrorCode.none, ErrorCode.none, ErrorCode.unknown_member_id)
    assert bench.state() == "Empty"
    assert bench.answer(bench.coordinator.leave, [Caller("h", "x")]) == (
        ErrorCode.unknown_member_id,
    )


def test_the_others_divide_what_a_leaver_had(bench: Bench) -> None:
    leader, other = bench.stable(2)
    bench.answer(bench.coordinator.leave, [Caller("g", leader.member_id)])
    assert bench.heartbeat(other) is ErrorCode.rebalance_in_progress
    assert bench.joined(other.member_id).leader == other.member_id


# --- static members -----------------------------------------------------------------------------


def static_pair(bench: Bench) -> tuple[str, str]:
    """Two static members, the leader first, in a stable generation 2."""
    first = bench.joined(instance="i1")
    second = bench.join(instance="i2")
    leader = bench.joined(first.member_id, "i1")
    follower = bench.answers[second]
    caller = Caller("g", leader.member_id, "i1", leader.generation)
    gifts = ((leader.member_id, b"one"), (follower.member_id, b"two"))
    assert not bench.answer(
        bench.coordinator.sync, Sync(caller=caller, assignments=gifts)
    ).error_code
    return leader.member_id, follower.member_id


def sync_of(bench: Bench, member: str, instance: str, generation: int) -> bytes:
    request = Sync(caller=Caller("g", member, instance, generation))
    answer = bench.answer(bench.coordinator.sync, request)
    assert answer.error_code is ErrorCode.none
    return bytes(answer.assignment)


def test_a_static_member_comes_back_to_its_assignment_without_a_rebalance(bench: Bench) -> None:
    leader, follower = static_pair(bench)
    back = bench.joined(instance="i2", client_id="new")
    assert (back.error_code, back.generation, back.leader) == (ErrorCode.none, 2, leader)
    assert back.member_id != follower
    assert bench.state() == "Stable"
    assert sync_of(bench, back.member_id, "i2", 2) == b"two"
    record = bench.machine.state.groups.by_id["g"].members[back.member_id]
    assert record.client_id == "new"


def test_a_static_leader_that_comes_back_need_not_assign(bench: Bench) -> None:
    leader, _ = static_pair(bench)
    back = bench.joined(instance="i1")
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert len(back.members) == 2
    again = bench.joined(instance="i1", may_skip_assignment=False)
    assert not again.skip_assignment
    assert again.leader == back.member_id != again.member_id
    assert sync_of(bench, again.member_id, "i1", 2) == b"one"
    assert leader not in bench.machine.state.groups.by_id["g"].members


def test_the_older_of_two_with_one_instance_id_is_fenced(bench: Bench) -> None:
    _, follower = static_pair(bench)
    bench.join(instance="i2")
    old = Caller("g", follower, "i2", 2)
    assert bench.answer(bench.coordinator.heartbeat, old) is ErrorCode.fenced_instance_id
    assert bench.commit(old) is ErrorCode.fenced_instance_id
    assert bench.joined(follower, "i2").error_code is ErrorCode.fenced_instance_id
    assert bench.answer(bench.coordinator.leave, [old]) == (ErrorCode.fenced_instance_id,)
    assert bench.joined("x", "i9").error_code is ErrorCode.unknown_member_id


def test_a_static_member_that_is_away_is_not_waited_for(bench: Bench) -> None:
    leader, follower = static_pair(bench)
    bench.join(leader, "i1", session_timeout_ms=100_000)
    bench.pass_time(9)
    bench.answer(bench.coordinator.heartbeat, Caller("g", follower, "i2", 2))
    for _ in range(5):
        bench.pass_time(5)
        bench.answer(bench.coordinator.heartbeat, Caller("g", follower, "i2", 2))
    members = bench.machine.state.groups.by_id["g"].members
    assert set(members) == {leader, follower}
    assert bench.machine.state.groups.by_id["g"].generation == 3


# --- leader changes -----------------------------------------------------------------------------


def test_a_new_leader_keeps_generation_and_assignments(bench: Bench) -> None:
    leader, other, _ = bench.stable(3)
    bench.pass_time(9)
    bench.elect()
    bench.pass_time(9)  # a whole session timeout from the election on
    assert bench.heartbeat(leader) is ErrorCode.none
    assert bench.answers[bench.sync(other)].assignment == other.member_id.encode()
    bench.pass_time(2)
    assert bench.state() == "PreparingRebalance"


def test_a_new_leader_finishes_a_rebalance_that_it_finds(bench: Bench) -> None:
    [old] = bench.stable()
    name, _ = bench.new_member()
    bench.join(old.member_id)
    bench.elect()
    assert bench.state() == "CompletingRebalance"
    leader = bench.joined(old.member_id)
    follower = bench.joined(name)
    assert leader.generation == follower.generation == 2
    assert bench.answers[bench.sync(leader, **{name: b"x"})].error_code is ErrorCode.none
    assert bench.answers[bench.sync(follower)].assignment == b"x"


def test_a_new_leader_does_not_wait_for_members_that_left(bench: Bench) -> None:
    leader, other = bench.stable(2)
    bench.answer(bench.coordinator.leave, [Caller("g", leader.member_id)])
    bench.elect()
    assert bench.joined(other.member_id).generation == other.generation + 1


# --- the rest -----------------------------------------------------------------------------------


def test_groups_are_described_and_listed(bench: Bench) -> None:
    [joined] = bench.stable()
    bench.commit(Caller("simple"))
    [group, none] = finished(bench.answer(bench.coordinator.describe, ["g", "none"]))
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    [member] = group.members
    assert (member.member_id, member.client_id, member.member_assignment) == ("id1", "c", b"id1")
    assert (none.error_code, none.group_state) == (ErrorCode.none, "Dead")
    listed = finished(bench.answer(bench.coordinator.list_groups))
    assert [(one.group_id, one.protocol_type, one.group_state) for one in listed] == [
        ("g", "consumer", "Stable"),
        ("simple", "", "Empty"),
    ]
    assert joined.member_id == member.member_id


def test_only_groups_without_members_are_deleted(bench: Bench) -> None:
    [joined] = bench.stable()
    bench.commit(Caller("simple"))
    groups = ["g", "simple", "none"]
    errors = (ErrorCode.non_empty_group, ErrorCode.none, ErrorCode.group_id_not_found)
    assert bench.answer(bench.coordinator.delete, groups) == errors
    assert list(bench.machine.state.groups.by_id) == ["g"]
    bench.answer(bench.coordinator.leave, [Caller("g", joined.member_id)])
    assert bench.answer(bench.coordinator.delete, ["g"]) == (ErrorCode.none,)
    assert not bench.machine.state.groups.by_id


def test_a_deleted_group_that_a_command_creates_again_can_be_deleted_again(bench: Bench) -> None:
    """`samelog group reset` and Spark's sources write positions without the coordinator."""
    bench.commit(Caller("simple"))
    for _ in range(2):
        assert bench.answer(bench.coordinator.delete, ["simple"]) == (ErrorCode.none,)
        assert bench.answer(bench.coordinator.delete, ["simple"]) == (ErrorCode.group_id_not_found,)
        [number] = [*bench.machine.state.partitions.by_number][:1]
        bench.machine.apply(CommitOffsets([("simple", [(number, CommittedOffset(3, -1, "", 1))])]))


@given(st.binary(max_size=40))
def test_any_metadata_can_be_looked_at(data: bytes) -> None:
    assert isinstance(assigned_partitions(data), list)
    topics = subscribed_topics(data)
    assert topics is None or all(isinstance(topic, str) for topic in topics)


def test_subscriptions_are_read() -> None:
    assert subscribed_topics(subscription("a", "bb")) == {"a", "bb"}
    assert subscribed_topics(subscription("a")[:-5]) is None
    numbers = b"\0\0\0\2\0\0\0\4\0\0\0\5"
    assert assigned_partitions(b"\0\1\0\0\0\1\0\1t" + numbers) == [("t", (4, 5))]
