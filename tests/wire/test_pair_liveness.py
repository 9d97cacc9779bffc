"""One beat for all quiet groups of two members: what it may say, and what it finds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.wire.pair_liveness import (
    NOTHING,
    BeatReply,
    FollowingEnd,
    LeadingEnd,
    PairBeat,
    TermSet,
    Woken,
)
from tests.examples import at_most

NEVER = float("-inf")
PATIENCE_S = 4.0


@dataclass
class Pair:
    """Both ends, and a connection each way that keeps order and may lose messages. What an end
    truly has is kept beside it.
    """

    leading: LeadingEnd = field(default_factory=LeadingEnd)
    following: FollowingEnd = field(default_factory=FollowingEnd)
    led: dict[int, int] = field(default_factory=dict)
    followed: dict[int, int] = field(default_factory=dict)
    there: deque[Any] = field(default_factory=deque)
    back: deque[Any] = field(default_factory=deque)
    now: float = 0.0
    agreed: int = 0

    # --- what may happen --------------------------------------------------------------------------

    def quiet(self, group: int, term: int) -> None:
        self.led[group] = term
        self.leading.quiet(group, term)
        self.there.append((group, term))

    def depose(self, group: int) -> None:
        """The leader steps down, and cannot say so."""
        self.led.pop(group, None)
        self.leading.wake(group)

    def leave(self, group: int) -> None:
        """The follower follows another one, or nobody, and cannot say so."""
        self.followed.pop(group, None)
        self.following.wake(group)

    def beat(self) -> None:
        self.now += 1.0
        self.there.append((self.leading.beat(), dict(self.led)))

    def lose(self, *, back: bool) -> None:
        way = self.back if back else self.there
        if way:
            way.popleft()

    def deliver(self, *, back: bool) -> None:
        if back and self.back:
            self._answered(*self.back.popleft())
        elif not back and self.there:
            self._heard(self.there.popleft())

    def settle(self) -> None:
        while self.there or self.back:
            self.deliver(back=False)
            self.deliver(back=True)

    # --- what follows, and what must hold ---------------------------------------------------------

    def _heard(self, message: Any) -> None:
        if isinstance(message, Woken):
            self.following.woken(message.there)
            for group in message.there:
                self.followed.pop(group, None)
        elif isinstance(message[0], PairBeat):
            beat, led = message
            reply = self.following.hear(beat, self.now)
            assert reply.agrees == (led == self.followed)
            self.back.append((reply, led, dict(self.followed)))
        else:
            group, term = message
            self.followed[group] = term
            self.following.quiet(group, term, self.now)

    def _answered(self, reply: BeatReply, led: dict[int, int], followed: dict[int, int]) -> None:
        before = {group: self.leading.heard(group) for group in self.led}
        woken = self.leading.answered(reply, self.now)
        for group, term in self.led.items():
            if group not in woken.here and self.leading.heard(group) > before[group]:
                assert led[group] == followed[group] == term
                self.agreed += 1
        for group in woken.here:
            assert followed.get(group) != self.led.pop(group)
        if woken.there:
            self.there.append(woken)


def test_quiet_groups_are_heard_by_one_beat_of_one_size() -> None:
    for groups in (1, 1000):
        pair = Pair()
        for group in range(groups):
            pair.quiet(group, 7)
        assert pair.leading.heard(0) == NEVER
        pair.settle()
        pair.beat()
        assert len(pair.there) == 1
        pair.settle()
        assert all(pair.leading.heard(group) == pair.now for group in range(groups))
        assert pair.agreed == groups
        assert pair.following.silent(pair.now + PATIENCE_S / 2, PATIENCE_S) == frozenset()
        woken = pair.following.silent(pair.now + PATIENCE_S, PATIENCE_S)
        assert woken == frozenset(range(groups))


@pytest.mark.parametrize("who", ["depose", "leave"])
def test_a_difference_wakes_those_that_differ_and_no_other(who: str) -> None:
    pair = Pair()
    for group in range(100):
        pair.quiet(group, 7)
    pair.beat()
    pair.settle()
    getattr(pair, who)(42)
    pair.beat()
    pair.settle()
    assert not pair.leading.is_quiet(42)
    assert not pair.following.is_quiet(42)
    assert all(pair.leading.is_quiet(g) and pair.following.is_quiet(g) for g in range(42))
    pair.beat()
    pair.settle()
    assert pair.leading.heard(41) == pair.now
    assert pair.leading.heard(42) == NEVER


def test_the_same_groups_in_another_term_differ() -> None:
    leading, following = LeadingEnd(), FollowingEnd()
    leading.quiet(1, 8)
    following.quiet(1, 7, 0.0)
    reply = following.hear(leading.beat(), 1.0)
    assert not reply.agrees
    assert leading.answered(reply, 1.0) == Woken(frozenset({1}), frozenset({1}))


def test_what_became_quiet_behind_a_beat_is_not_heard_by_it() -> None:
    leading, following = LeadingEnd(), FollowingEnd()
    leading.quiet(1, 7)
    following.quiet(1, 7, 0.0)
    beat = leading.beat()
    leading.quiet(2, 7)
    assert leading.answered(following.hear(beat, 1.0), 1.5) == NOTHING
    assert leading.heard(1) == 1.5
    assert leading.heard(2) == NEVER


def test_an_old_answer_says_nothing() -> None:
    leading, following = LeadingEnd(), FollowingEnd()
    leading.quiet(1, 7)
    following.quiet(1, 7, 0.0)
    old = following.hear(leading.beat(), 1.0)
    assert leading.reset() == {1}
    leading.quiet(1, 7)
    assert leading.answered(old, 2.0) == NOTHING
    assert leading.heard(1) == NEVER
    assert leading.answered(BeatReply(99, agrees=True), 2.0) == NOTHING
    assert leading.heard(1) == NEVER


def test_a_leader_that_makes_others_quiet_is_not_heard_for_those_that_are() -> None:
    following = FollowingEnd()
    following.quiet(1, 7, 0.0)
    following.quiet(2, 7, 100.0)
    assert following.silent(100.0, PATIENCE_S) == {1, 2}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 4)), max_size=60))
def test_a_digest_is_of_the_set_whatever_its_history(puts: list[tuple[int, int]]) -> None:
    one, other = TermSet(), TermSet()
    for group, term in puts:
        one.put(group, term)
        if group % 3 == 0:
            one.remove(group)
    for group, term in sorted(one.terms.items()):
        other.put(group, term)
    assert one.digest == other.digest
    other.put(99, 1)
    assert one.digest != other.digest


GROUPS = st.integers(0, 5)
STEPS = st.one_of(
    st.tuples(st.just("quiet"), GROUPS, st.integers(1, 3)),
    st.tuples(st.sampled_from(["depose", "leave"]), GROUPS),
    st.tuples(st.sampled_from(["beat", "there", "back", "lose there", "lose back"])),
)


@settings(max_examples=at_most(300))
@given(st.lists(STEPS, max_size=80))
def test_nobody_is_heard_for_what_it_does_not_share_and_differences_are_found(
    steps: list[tuple[Any, ...]],
) -> None:
    pair = Pair()
    for name, *arguments in steps:
        match name:
            case "there" | "back":
                pair.deliver(back=name == "back")
            case "lose there" | "lose back":
                pair.lose(back=name == "lose back")
            case _:
                getattr(pair, name)(*arguments)
    for _ in range(3):
        pair.beat()
        pair.settle()
    assert pair.led == pair.followed
    assert all(pair.leading.heard(group) == pair.now for group in pair.led)
