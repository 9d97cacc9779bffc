"""How long changes are gathered follows the load."""

from __future__ import annotations

import pytest

from samelog.runtime.linger import GROWTH, STEPS, Linger

SHORTEST_S = 0.004
LONGEST_S = SHORTEST_S * GROWTH
STEP_S = (LONGEST_S - SHORTEST_S) / STEPS


def follow_closely(linger: Linger, times: int) -> float:
    """Changes keep coming 1 ms after everything was sent; return the last wait."""
    wait_s = 0.0
    for _ in range(times):
        linger.sent(100.0)
        wait_s = linger.wait_s(100.001)
    return wait_s


def test_the_first_change_after_a_pause_is_sent_at_once() -> None:
    linger = Linger(SHORTEST_S)
    assert linger.wait_s(100.0) == 0
    linger.sent(100.0)
    assert linger.wait_s(100.0 + SHORTEST_S + 1e-6) == 0


def test_a_change_that_follows_closely_waits_for_the_linger() -> None:
    linger = Linger(SHORTEST_S)
    assert follow_closely(linger, 1) == linger.linger_s == pytest.approx(SHORTEST_S + STEP_S)


def test_the_linger_grows_while_changes_keep_coming_and_shrinks_with_pauses() -> None:
    linger = Linger(SHORTEST_S)
    assert follow_closely(linger, STEPS - 1) < LONGEST_S
    assert follow_closely(linger, 100) == pytest.approx(LONGEST_S)
    for number in range(STEPS):
        assert linger.linger_s == pytest.approx(LONGEST_S - number * STEP_S)
        linger.sent(200.0 + number)
        assert linger.wait_s(200.5 + number) == 0
    assert linger.linger_s == pytest.approx(SHORTEST_S)


def test_pauses_between_pairs_keep_the_linger_short() -> None:
    linger = Linger(SHORTEST_S)
    for number in range(100):
        linger.sent(100.0 + number)
        linger.wait_s(100.001 + number)
        linger.wait_s(100.5 + number)
    assert linger.linger_s <= SHORTEST_S + STEP_S


def test_a_linger_of_zero_stays() -> None:
    linger = Linger(0.0)
    assert follow_closely(linger, 100) == 0
    assert linger.linger_s == 0


def test_another_shortest_linger_counts_at_once() -> None:
    linger = Linger(SHORTEST_S)
    follow_closely(linger, 100)
    linger.limit(0.1)
    assert linger.linger_s == 0.1
    linger.sent(100.0)
    assert linger.wait_s(100.05) >= 0.1
