"""The check of transactions finds each kind of harm."""

from __future__ import annotations

import pytest

from tests.chaos.transactions import problems

GOOD = [["a:1:0", "b:1:0", "a:1:2", "a:2:0"]] * 3
NOTES = ["committed a:1:0", "aborted a:1:1", "committed a:1:2", "committed b:1:0"]


def test_what_was_promised_is_kept() -> None:
    """The last one of a life that was killed may be there or not."""
    assert problems(GOOD, NOTES) == []


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ([*GOOD[:2], ["a:1:0", "b:1:0", "a:1:2"]], "there in part"),
        ([["a:1:0", *each] for each in GOOD], "there twice"),
        ([["b:1:0", "a:1:2", "a:1:0"]] * 3, "out of order"),
        ([["a:2:0", "b:1:0", "a:1:0", "a:1:2"]] * 3, "out of order"),
        ([["a:1:0", "a:1:2"]] * 3, "committed are not there"),
        ([["a:1:0", "b:1:0", "a:1:1", "a:1:2"]] * 3, "aborted are there"),
    ],
)
def test_harm_is_found(moves: list[list[str]], said: str) -> None:
    assert any(said in problem for problem in problems(moves, NOTES))
