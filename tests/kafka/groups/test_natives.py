"""Groups of samelog's own subscribers at the coordinator: rule by rule, and in random lives."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups.requests import Beaten, Caller, GroupBeat, OffsetCommit
from samelog.sequencer.state.machine import StateMachine
from tests.kafka.groups.group_client import Bench
from tests.kafka.groups.native_world import life

A = "samelog://user/a"


@pytest.fixture
def bench() -> Bench:
    return Bench()


def beat(
    bench: Bench,
    member: str,
    epoch: int,
    *,
    identity: str | None = A,
    owned: Sequence[int] | None = None,
    commits: Sequence[tuple[int, int]] = (),
    leaves: bool = False,
) -> Beaten:
    request = GroupBeat(
        caller=Caller("g", member, None, epoch),
        client_id="c",
        client_host="here",
        rebalance_timeout_ms=30_000,
        topics=["t"],
        owned=[] if epoch == 0 and owned is None else owned,
        identity=identity,
        commits=[OffsetCommit(*each) for each in commits],
        leaves=leaves,
    )
    answer: Beaten = bench.answer(bench.coordinator.beat, request)
    return answer


def committed(bench: Bench) -> dict[int, int]:
    offsets = bench.machine.state.groups.by_id["g"].offsets
    return {number: known.offset for number, known in offsets.items()}


def test_who_a_member_is_is_remembered(bench: Bench) -> None:
    bench.pass_time(3)
    assert beat(bench, "a", 0).assigned == (1, 2)
    known = bench.machine.state.groups.by_id["g"].natives["a"]
    assert (known.identity, known.joined_ms, known.moved_ms) == (A, 3000, 3000)
    bench.pass_time(1)
    beat(bench, "b", 0)
    beat(bench, "a", 1)
    bench.elect()
    known = bench.machine.state.groups.by_id["g"].natives["a"]
    assert (known.joined_ms, known.moved_ms) == (3000, 4000)
    assert bench.coordinator.times("g", "a") == (-1, -1)
    beat(bench, "a", 1, leaves=True)
    assert set(bench.machine.state.groups.by_id["g"].natives) == {"b"}


@pytest.mark.parametrize(("first", "second"), [(A, None), (None, A)])
def test_a_group_has_members_of_one_kind(
    bench: Bench, first: str | None, second: str | None
) -> None:
    beat(bench, "a", 0, identity=first)
    refused = beat(bench, "b", 0, identity=second)
    assert refused.error is ErrorCode.inconsistent_group_protocol
    assert refused.message is not None
    assert "once it is empty" in refused.message
    beat(bench, "a", 1 if first else -1, identity=first, leaves=first is not None)
    assert beat(bench, "b", 0, identity=second).error is ErrorCode.none


def test_a_group_of_classic_members_takes_no_subscriber(bench: Bench) -> None:
    bench.stable()
    refused = beat(bench, "a", 0)
    assert refused.error is ErrorCode.inconsistent_group_protocol
    assert refused.message is not None


def test_a_member_is_heard_from_its_own_identity(bench: Bench) -> None:
    beat(bench, "a", 0)
    other = "samelog://user/other"
    assert beat(bench, "a", 1, identity=other).error is ErrorCode.group_authorization_failed
    refused = beat(bench, "a", 1, identity=other, commits=[(1, 9)])
    assert refused.not_committed == (1,)
    assert beat(bench, "a", 1, identity=other, leaves=True).error is not ErrorCode.none
    assert beat(bench, "a", 1).error is ErrorCode.none


def test_a_member_commits_what_it_has_until_it_has_given_it_up(bench: Bench) -> None:
    beat(bench, "a", 0)
    assert beat(bench, "a", 1, commits=[(1, 5), (2, 6)]).not_committed == ()
    beat(bench, "b", 0)
    told = beat(bench, "a", 1)
    assert told.assigned is not None
    [kept] = told.assigned
    [given] = {1, 2} - {kept}
    assert beat(bench, "a", 1, commits=[(given, 7)]).not_committed == ()  # it has not yet
    assert beat(bench, "a", 1, owned=[kept], commits=[(given, 8)]).not_committed == ()
    assert committed(bench)[given] == 8
    assert beat(bench, "b", 2).assigned == (given,)
    late = beat(bench, "a", 2, commits=[(given, 6)])
    assert late.not_committed == (given,)
    assert committed(bench)[given] == 8


def test_kafka_s_requests_commit_nothing_for_a_subscriber(bench: Bench) -> None:
    beat(bench, "a", 0)
    caller = Caller("g", "a", None, 1)
    refused = bench.answer(bench.coordinator.commit, caller, [OffsetCommit(1, 3)])
    assert refused == (ErrorCode.unknown_member_id,)
    anybody = bench.answer(bench.coordinator.commit, Caller("g"), [OffsetCommit(1, 3)])
    assert anybody == (ErrorCode.unknown_member_id,)


def test_the_last_words_of_a_member_are_committed(bench: Bench) -> None:
    beat(bench, "a", 0)
    beat(bench, "a", 1, commits=[(1, 4)], leaves=True)
    assert committed(bench) == {1: 4}
    again = StateMachine.decode(bench.machine.encode()).state.groups.by_id["g"]
    assert not again.natives
    assert not again.has_members


def test_a_group_that_is_made_anew_counts_on(bench: Bench) -> None:
    bench.now = 1_767_225_600.0 + 1000
    first = beat(bench, "a", 0).epoch
    beat(bench, "a", first, leaves=True)
    bench.answer(bench.coordinator.delete, ["g"])
    assert "g" not in bench.machine.state.groups.by_id
    bench.pass_time(60)
    assert beat(bench, "b", 0).epoch > first


def test_an_empty_group_of_kafka_s_counts_on_in_seconds(bench: Bench) -> None:
    bench.now = 1_767_225_600.0 + 1000
    bench.elect()
    beat(bench, "k", 0, identity=None)
    beat(bench, "k", -1, identity=None)
    assert beat(bench, "a", 0).epoch > 1000


def test_a_producer_that_names_no_member_commits_nothing_for_subscribers(bench: Bench) -> None:
    ask = bench.coordinator.may_commit_in_transaction
    assert bench.answer(ask, Caller("g")) == (ErrorCode.none,)
    beat(bench, "a", 0)
    assert bench.answer(ask, Caller("g")) == (ErrorCode.unknown_member_id,)
    beat(bench, "a", 1, leaves=True)
    assert bench.answer(ask, Caller("g")) == (ErrorCode.none,)


def note(bench: Bench, offset: int) -> tuple[ErrorCode, ...]:
    found: tuple[ErrorCode, ...] = bench.answer(
        bench.coordinator.note, "g", [OffsetCommit(1, offset)]
    )
    return found


@pytest.mark.parametrize("identity", [A, None])
def test_a_named_subscriber_s_position_is_kept_from_groups(
    bench: Bench, identity: str | None
) -> None:
    assert note(bench, 3) == note(bench, 4) == (ErrorCode.none,)
    assert committed(bench) == {1: 4}
    beat(bench, "a", 0, identity=identity)
    assert note(bench, 9) == (ErrorCode.inconsistent_group_protocol,)
    beat(bench, "a", 1 if identity else -1, identity=identity, leaves=identity is not None)
    for _ in range(2):
        assert note(bench, 9) == (ErrorCode.inconsistent_group_protocol,)
        bench.elect()
    assert committed(bench) == {1: 4}
    bench.answer(bench.coordinator.delete, ["g"])
    assert note(bench, 9) == (ErrorCode.none,)


def test_a_named_subscriber_s_position_is_kept_from_classic_groups(bench: Bench) -> None:
    [leader] = bench.stable()
    assert note(bench, 9) == (ErrorCode.inconsistent_group_protocol,)
    bench.answer(bench.coordinator.leave, [Caller("g", leader.member_id)])
    bench.elect()
    assert note(bench, 9) == (ErrorCode.inconsistent_group_protocol,)
    assert committed(bench) == {}


@pytest.mark.parametrize("seed", range(25))
def test_nothing_is_left_out_in_a_random_life(seed: int) -> None:
    life(seed)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_comes_twice_where_everybody_is_asked(seed: int) -> None:
    life(seed, disturbed=False)


@pytest.mark.parametrize("seed", range(25))
def test_results_are_there_once_in_a_random_life(seed: int) -> None:
    life(seed, own=True)
