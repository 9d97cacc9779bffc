"""All quiet groups of some members: who rests with whom, and who is woken."""

from __future__ import annotations

from samelog.wire.member_beats import NOT_YET, MemberBeats, Rest, Silence

PATIENCE_S = 1.5
NOTHING = Silence(frozenset(), frozenset())


def pair() -> tuple[MemberBeats, MemberBeats]:
    """Member 0, which leads groups 1 and 2, and member 1, which follows."""
    one, other = MemberBeats(), MemberBeats()
    for group in (1, 2):
        one.rests(group, Rest(7, (1,), is_led=True), 0.0)
        other.rests(group, Rest(7, (0,)), 0.0)
    return one, other


def beat(one: MemberBeats, other: MemberBeats, now: float) -> tuple[set[int], set[int]]:
    """What has to wake here and there after a beat of 0 to 1."""
    ((to, said),) = one.due(now)
    assert to == 1
    here, there = one.answered(1, other.hear(0, said, now), now)
    return set(here), set(there)


def test_one_beat_speaks_for_all() -> None:
    one, other = pair()
    assert beat(one, other, 5.0) == (set(), set())
    assert other.heard(1) == other.heard(2) == 5.0
    assert one.heard(1) == other.heard(3) == NOT_YET
    assert not other.due(5.0), "who leads nothing says nothing"


def test_what_woke_here_is_woken_there() -> None:
    one, other = pair()
    one.woke(1)
    assert beat(one, other, 1.0) == (set(), {1})
    assert other.not_led(0, [1, 9]) == {1}


def test_what_woke_there_is_woken_here() -> None:
    one, other = pair()
    other.woke(2)
    assert beat(one, other, 1.0) == ({2}, set())


def test_another_term_is_another_rest() -> None:
    one, other = pair()
    other.rests(2, Rest(8, (0,)), 1.0)
    here, there = beat(one, other, 2.0)
    assert here == there == {2}


def test_a_group_that_rests_with_another_leader_left_the_first() -> None:
    one, other = pair()
    other.rests(1, Rest(8, (5,)), 1.0)
    assert other.silent(1.0 + PATIENCE_S, PATIENCE_S).led == {1, 2}
    assert beat(one, other, 2.0)[0] >= {1}


def test_a_silent_leader_wakes_what_it_leads() -> None:
    one, other = pair()
    beat(one, other, 5.0)
    assert other.silent(5.0 + PATIENCE_S / 2, PATIENCE_S) == NOTHING
    assert other.silent(5.0 + PATIENCE_S, PATIENCE_S).led == {1, 2}


def test_a_silent_follower_wakes_what_it_follows() -> None:
    one, _ = pair()
    one.due(5.0)
    assert one.silent(5.0 + PATIENCE_S / 2, PATIENCE_S) == NOTHING
    assert one.silent(5.0 + PATIENCE_S, PATIENCE_S).followed == {1, 2}
    for group in (1, 2):
        one.woke(group)
    assert not one.due(9.0)


def test_another_life_of_a_member_wakes_all_that_rests_with_it() -> None:
    one, other = pair()
    other.rests(3, Rest(1, (0, 2), is_led=True), 0.0)
    assert one.lost(1).followed == {1, 2}
    assert other.lost(0) == Silence(frozenset({1, 2}), frozenset({3}))
    assert other.lost(0) == NOTHING
    other.woke(3)
    assert not other.due(1.0), "nothing is left in the end with the third member"
