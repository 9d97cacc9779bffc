"""When a disk is waited for, and when not."""

from __future__ import annotations

from samelog.runtime.disk.pace import FAST_S, GAINED_AFTER, REGAINED_AFTER, SLOW_S, DiskPace


def _after(*seconds: float) -> DiskPace:
    pace = DiskPace()
    for taken in seconds:
        pace.took(taken)
    return pace


def test_an_unknown_disk_is_not_waited_for() -> None:
    assert not DiskPace().is_fast
    assert not _after(*[FAST_S] * (GAINED_AFTER - 1)).is_fast


def test_a_disk_is_fast_after_some_fast_syncs() -> None:
    assert _after(*[FAST_S] * GAINED_AFTER).is_fast


def test_middling_syncs_gain_nothing_and_lose_nothing() -> None:
    middling = (FAST_S + SLOW_S) / 2
    assert not _after(*[middling] * 1000).is_fast
    assert not _after(*[FAST_S] * (GAINED_AFTER - 1), middling, FAST_S).is_fast
    assert _after(*[FAST_S] * GAINED_AFTER, middling).is_fast


def test_one_slow_sync_costs_a_long_row_of_fast_ones() -> None:
    gained = [FAST_S] * GAINED_AFTER
    assert not _after(*gained, 2 * SLOW_S).is_fast
    assert not _after(*gained, 2 * SLOW_S, *[FAST_S] * (REGAINED_AFTER - 1)).is_fast
    assert _after(*gained, 2 * SLOW_S, *[FAST_S] * REGAINED_AFTER).is_fast
