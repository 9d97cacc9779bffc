"""What many nodes say, put together: never back, never more than was said."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import InputName, RollByte
from samelog.replicator.push.progress import NOWHERE, InputProgress, LostRange, SessionProgress

A: InputName = ("a", 0)
B: InputName = ("b", 1)

PLACES = st.tuples(st.integers(0, 3), st.integers(0, 5))
SAYINGS = st.tuples(st.integers(0, 2), st.sampled_from([A, B]), st.tuples(PLACES, PLACES, PLACES))


@given(st.lists(SAYINGS))
def test_positions_are_the_highest_that_were_said(
    sayings: list[tuple[int, InputName, tuple[RollByte, RollByte, RollByte]]],
) -> None:
    progress = SessionProgress()
    said: dict[InputName, tuple[list[SessionPosition], ...]] = {}
    for run, name, places in sayings:
        before = progress.inputs.get(name, InputProgress())
        news = progress.reached(run, name, places)
        lists = said.setdefault(name, ([NOWHERE], [NOWHERE], [NOWHERE]))
        for known, place in zip(lists, places, strict=True):
            known.append(SessionPosition(run, *place) if place > (0, 0) else NOWHERE)
        after = progress.inputs[name]
        assert (after.durable, after.acknowledged, after.merged) == tuple(map(max, lists))
        assert news or after == before
        assert progress.merged(run, name) >= places[2]


def test_a_new_run_says_nothing_of_the_one_before() -> None:
    progress = SessionProgress()
    progress.reached(0, A, ((0, 9), (0, 9), (0, 5)))
    progress.reached(1, A, ((0, 0), (0, 0), (0, 0)))
    assert progress.inputs[A].merged == (0, 0, 5)
    progress.reached(1, A, ((0, 7), (0, 7), (0, 0)))
    assert progress.inputs[A] == InputProgress(
        SessionPosition(1, 0, 7), SessionPosition(1, 0, 7), SessionPosition(0, 0, 5)
    )


def test_a_closed_run_is_acknowledged_to_its_end_but_not_merged() -> None:
    progress = SessionProgress()
    assert progress.close_run(0, {A: (1, 4)}, {})
    assert not progress.close_run(0, {A: (9, 9)}, {})
    assert progress.inputs[A].acknowledged == (0, 1, 4)
    assert progress.inputs[A].merged == NOWHERE
    assert progress.ends == {0: {A: (1, 4)}}


def test_what_is_named_and_not_there_is_not_acknowledged() -> None:
    """A data group has yet to take its part of a closed run."""
    progress, other = SessionProgress(), ("t", 7)
    assert progress.close_run(0, {A: (1, 4), other: (0, 9)}, {}, {other})
    assert progress.inputs[A].acknowledged == (0, 1, 4)
    assert other not in progress.inputs
    assert progress.ends == {0: {A: (1, 4), other: (0, 9)}}


def test_what_is_gone_or_lost_is_so_for_its_run() -> None:
    progress = SessionProgress()
    assert progress.let_go(0, A)
    assert not progress.let_go(0, A)
    assert progress.let_go(2, A)
    assert progress.is_gone(0, A)
    assert not progress.is_gone(1, A)
    assert progress.gone() == {A: 2}
    progress.lose(LostRange(1, B, (0, 1), (0, 2)))
    assert progress.is_lost(1, B)
    assert not progress.is_lost(0, B)
    progress.reached(2, A, ((0, 1), (0, 1), (0, 1)))
    progress.forget_run(2)
    assert progress.gone() == {A: 0}
    assert progress.merged(2, A) == (0, 0)
    assert progress.inputs[A].merged == (2, 0, 1)
