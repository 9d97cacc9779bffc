"""How long changes are gathered follows the load."""

from __future__ import annotations

import pytest

from samelog.runtime.linger import LONGEST_S, SLOW_S, STEP_S, Linger

SHORTEST_S = 0.004


def test_the_first_change_after_a_pause_is_sent_at_once() -> None:
    linger = Linger(SHORTEST_S)
    assert linger.wait_s(100.0) == 0
    linger.sent(100.0)
    assert linger.wait_s(100.0 + SHORTEST_S + 1e-6) == 0


def test_a_change_that_follows_closely_waits_for_the_linger() -> None:
    linger = Linger(SHORTEST_S)
    linger.sent(100.0)
    assert linger.wait_s(100.0 + SHORTEST_S / 2) == SHORTEST_S


def test_the_linger_grows_while_round_trips_are_slow_and_shrinks_again() -> None:
    linger = Linger(SHORTEST_S)
    linger.round_trip(SLOW_S * 100)
    assert linger.linger_s == pytest.approx(SHORTEST_S + STEP_S)
    for _ in range(100):
        linger.round_trip(SLOW_S * 1.1)
    assert linger.linger_s == LONGEST_S
    linger.sent(100.0)
    assert linger.wait_s(100.0 + SHORTEST_S * 1.5) == LONGEST_S
    for _ in range(100):
        linger.round_trip(SLOW_S)
    assert linger.linger_s == SHORTEST_S


def test_half_of_the_round_trips_decide_not_the_longest_ones() -> None:
    linger = Linger(SHORTEST_S)
    for number in range(100):
        linger.round_trip(1.0 if number % 3 == 0 else 0.001)
    assert linger.linger_s <= SHORTEST_S + STEP_S


@pytest.mark.parametrize("shortest_s", [0.0, 0.02])
def test_a_linger_of_zero_or_above_the_longest_stays(shortest_s: float) -> None:
    linger = Linger(shortest_s)
    for took_s in (1.0, 1.0, 0.001, 1.0):
        linger.round_trip(took_s)
        assert linger.linger_s == shortest_s


def test_another_shortest_linger_counts_at_once() -> None:
    linger = Linger(SHORTEST_S)
    linger.limit(0.1)
    linger.sent(100.0)
    assert linger.wait_s(100.05) == 0.1
