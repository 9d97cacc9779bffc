"""SharedTimers that share their timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from samelog.kafka.shared_timers import TICK_S, SharedTimer, SharedTimers


class Loop:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[int], None], tick: int) -> None:
        self.timers.append((when, lambda: call(tick)))

    def go_to(self, now: float) -> None:
        """Let time pass."""
        self.now = now
        due = [call for when, call in self.timers if when <= now]
        self.timers = [each for each in self.timers if each[0] > now]
        for call in due:
            call()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    found = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: found)
    return found


@pytest.mark.parametrize("after_ms", [-1, 0, 1, 49, 50, 51, 1000])
def test_they_pass_in_time_and_not_before(loop: Loop, after_ms: int) -> None:
    timers, called = SharedTimers(), list[float]()
    timers.add(after_ms, lambda: called.append(loop.now))
    at = loop.now + max(0, after_ms) / 1000
    loop.go_to(at - 0.001)
    assert not called
    loop.go_to(at + TICK_S + 0.001)
    assert len(called) == 1


def test_many_share_a_timer_and_those_that_were_cancelled_do_not_pass(loop: Loop) -> None:
    timers, called = SharedTimers(), list[int]()
    known = {n: timers.add(1000, lambda n=n: called.append(n)) for n in range(9)}  # type: ignore[misc]
    assert len(loop.timers) == 1
    for number in (2, 5):
        known[number].cancel()
    loop.go_to(102.0)
    assert sorted(called) == [0, 1, 3, 4, 6, 7, 8]
    known[1].cancel()
    assert not loop.timers


def test_one_that_passes_may_cancel_another(loop: Loop) -> None:
    timers, called = SharedTimers(), list[str]()
    both: list[SharedTimer] = []

    def other(name: str) -> Callable[[], None]:
        def passed() -> None:
            called.append(name)
            for each in both:
                each.cancel()

        return passed

    both += [timers.add(10, other("a")), timers.add(10, other("b"))]
    loop.go_to(101.0)
    assert len(called) == 1
