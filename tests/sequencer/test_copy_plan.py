"""Which partitions are copied next, from whom, and when another peer is asked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samelog.sequencer.cluster.repair.plan import (
    PATIENCE_S,
    RETRY_S,
    STREAMS,
    CopyOrder,
    CopyPlan,
    Lack,
)

SOON = PATIENCE_S * 1.01


def lacking(plan: CopyPlan, *sizes: int) -> None:
    """Partitions 0, 1, ... lack so many records each."""
    for number, size in enumerate(sizes):
        plan.note(number, Lack(0, 1, size), 0.0)


def test_nothing_is_copied_before_its_publisher_had_time_to_send_it() -> None:
    plan = CopyPlan()
    lacking(plan, 10)
    assert list(plan.next([7], PATIENCE_S / 2)) == []
    plan.note(0, None, PATIENCE_S)
    assert list(plan.next([7], SOON)) == []


def test_those_that_lack_least_go_first_and_one_place_is_for_who_waited_longest() -> None:
    plan = CopyPlan()
    plan.note(99, Lack(0, 1, 1_000_000), -1.0)
    lacking(plan, *range(100, 100 + 2 * STREAMS))
    chosen = [copy.partition for copy in plan.next([1], SOON)]
    assert chosen == [*range(STREAMS - 1), 99]


def test_a_stream_that_brought_something_goes_on_at_once_with_the_same_peer() -> None:
    plan = CopyPlan()
    lacking(plan, 10)
    (first,) = plan.next([5, 6], SOON)
    plan.ended(0, 4, SOON, failed=False)
    plan.note(0, Lack(4, 5, 10), SOON)
    assert list(plan.next([5, 6], SOON + 1e-9)) == [first]


def test_who_gave_what_a_majority_has_not_is_asked_again_only_if_there_is_no_other_one() -> None:
    plan, now, asked = CopyPlan(), SOON, []
    lacking(plan, 10)
    for _ in range(3):
        (copy,) = plan.next([4, 5], now)
        asked.append(copy.peer)
        if copy.peer == 5:
            plan.distrust(0, 5)
        plan.ended(0, 0, now, failed=True)
        now += RETRY_S * 1.01
    assert asked == [5, 4, 4]
    assert [copy.peer for copy in plan.next([5], now)] == [5]


def test_another_peer_is_asked_at_once_and_all_of_them_again_a_little_later() -> None:
    plan, now, asked = CopyPlan(), SOON, []
    lacking(plan, 10)
    for _ in range(3):
        (copy,) = plan.next([4, 5, 6], now)
        asked.append(copy.peer)
        plan.ended(0, 0, now, failed=True)
        now += SOON
    assert asked == [5, 6, 4]  # the leader last
    assert plan.fruitless(0) == 3
    assert list(plan.next([4, 5, 6], now)) == []
    assert len(list(plan.next([4, 5, 6], now + RETRY_S))) == 1


def test_without_peers_it_is_still_said_that_nobody_has_it() -> None:
    plan = CopyPlan()
    lacking(plan, 10)
    assert list(plan.next([], SOON)) == [CopyOrder(0, None)]


@given(st.data())
def test_streams_are_bounded_and_all_is_copied_in_the_end(
    data: st.DataObject,
) -> None:
    plan, now = CopyPlan(), 0.0
    peers = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True))
    ends = dict.fromkeys(range(data.draw(st.integers(1, 3 * STREAMS))), 0)
    goals = {number: data.draw(st.integers(1, 50)) for number in ends}
    good = data.draw(st.sampled_from(peers))  # the only one that gives anything
    busy: dict[int, int | None] = {}
    for _ in range(4000):
        for number, end in ends.items():
            known = goals[number]
            plan.note(number, Lack(end, end + 1, known) if end < known else None, now)
        for copy in plan.next(peers, now):
            assert copy.partition not in busy
            assert ends[copy.partition] < goals[copy.partition]
            busy[copy.partition] = copy.peer
        assert len(busy) <= STREAMS
        if ends == goals:
            assert not busy
            return
        for number in list(busy):
            gives = busy.pop(number) == good
            ends[number] = min(goals[number], ends[number] + 20 * gives)
            plan.ended(number, ends[number], now, failed=not gives and data.draw(st.booleans()))
        now += 0.1
    raise AssertionError("not all is copied")
