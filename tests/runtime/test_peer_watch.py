"""The deadlines of one connection, in made-up time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.runtime.network.peer_watch import Deadlines, PeerWatch

LIMITS = Deadlines()


def talking(now: float = 0.0) -> PeerWatch:
    watch = PeerWatch(LIMITS, now)
    watch.opened(now)
    watch.first_frame(now)
    return watch


def test_the_handshake_has_ten_seconds() -> None:
    watch = PeerWatch(LIMITS, 100.0)
    watch.last_received = 104.0
    assert watch.missed(109.9) is None
    assert watch.missed(110.0) == "no TLS handshake in time"


def test_the_first_frame_has_ten_seconds_and_is_no_ping() -> None:
    watch = PeerWatch(LIMITS, 100.0)
    watch.opened(103.0)
    watch.last_received = 104.0
    watch.last_frame = 104.0
    assert not watch.has_talked
    assert watch.missed(112.9) is None
    assert watch.missed(113.0) == "no first frame in time"


@pytest.mark.parametrize(
    ("last_byte", "last_frame", "text"),
    [
        (0.0, 0.0, "silent for too long"),
        (15.0, 0.0, "no whole frame in time"),
    ],
)
def test_silence_and_trickling(last_byte: float, last_frame: float, text: str) -> None:
    watch = talking(last_frame)
    watch.last_received = last_byte
    due = min(last_byte + 10.0, last_frame + 20.0)
    assert watch.missed(due - 0.1) is None
    assert watch.missed(due) == text
    assert watch.has_talked


@pytest.mark.parametrize("phase", ["handshake", "first frame", "talking"])
def test_time_in_which_this_side_stood_still_is_not_the_peers(phase: str) -> None:
    watch = talking() if phase == "talking" else PeerWatch(LIMITS, 0.0)
    if phase == "first frame":
        watch.opened(0.0)
    watch.stood_still(60.0)
    assert watch.missed(69.9) is None
    assert watch.missed(70.0) is not None


def test_nothing_is_due_while_paused_and_everything_anew_afterwards() -> None:
    watch = talking()
    watch.paused(1.0)
    assert watch.missed(1000.0) is None
    assert watch.ping_due(1000.0)
    watch.resumed(1000.0)
    assert watch.missed(1009.9) is None
    assert watch.missed(1010.0) == "silent for too long"


def test_a_first_frame_that_pauses_reading_counts() -> None:
    watch = PeerWatch(LIMITS, 100.0)
    watch.opened(100.0)
    watch.paused(101.0)
    watch.first_frame(101.0)
    watch.resumed(200.0)
    assert watch.missed(206.0) is None
    assert watch.missed(210.0) == "silent for too long"


def test_the_end_has_five_seconds() -> None:
    watch = talking()
    watch.closing(50.0)
    assert watch.missed(54.9) is None
    assert watch.missed(55.0) == "not closed in time"
    assert not watch.ping_due(54.0)


def test_a_ping_is_due_when_nothing_else_was_sent() -> None:
    watch = talking()
    assert not watch.ping_due(1.9)
    assert watch.ping_due(2.0)
    watch.last_sent = 2.0
    assert not watch.ping_due(3.9)
    assert watch.ping_due(4.0)


STEPS = st.sampled_from(["received", "frame", "ping", "sent", "paused", "resumed", "none"])


@given(st.lists(st.tuples(STEPS, st.floats(0, 30)), max_size=30))
def test_checks_are_never_late(steps: list[tuple[str, float]]) -> None:
    """Asking exactly when told to ask finds a missed deadline at the moment it is missed."""
    watch, now, paused = talking(), 0.0, False
    for step, seconds in steps:
        check = watch.next_check(now)
        assert now < check <= now + LIMITS.ping_s or watch.missed(now) is not None
        if watch.missed(now) is None and not paused:
            assert watch.missed(check - 1e-6) is None
        now += seconds
        match step:
            case "received":
                watch.last_received = now
            case "frame" | "ping":
                watch.last_received = now
                watch.last_frame = now
                if step != "ping":
                    watch.first_frame(now)
            case "sent":
                watch.last_sent = now
            case "paused" if not paused:
                watch.paused(now)
                paused = True
            case "resumed" if paused:
                watch.resumed(now)
                paused = False
