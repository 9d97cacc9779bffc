"""Clock, back-off, log lines, the slow watch of files."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.config.tables.shared import LogLevel
from samelog.runtime.backoff import Backoff
from samelog.runtime.clock import ManualClock, SystemClock
from samelog.runtime.log import AUDIT, RateLimitedLog, format_event, start_log
from samelog.runtime.watch import FileWatch
from tests.runtime.peers import Lines, in_loop, until


def test_the_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(now=5.0, wall_ms=1000)
    clock.advance(1.5)
    assert (clock.now(), clock.wall_ms()) == (6.5, 2500)
    with pytest.raises(ValueError, match="back"):
        clock.advance(-0.1)


def test_the_system_clock_is_monotonic_and_in_milliseconds() -> None:
    clock = SystemClock()
    assert clock.now() <= clock.now()
    assert 1_600_000_000_000 < clock.wall_ms() < 4_000_000_000_000


@given(st.integers(0, 1000), st.integers(1, 40))
def test_delays_double_within_bounds(seed: int, tries: int) -> None:
    backoff = Backoff(Random(seed), base_s=0.05, maximum_s=2.0)
    for attempt in range(tries):
        ceiling = min(2.0, 0.05 * 2**attempt)
        assert ceiling / 2 <= backoff.next_delay_s() <= ceiling
    backoff.reset()
    assert backoff.next_delay_s() <= 0.05


def test_two_clients_do_not_retry_in_step() -> None:
    one, two = (Backoff(Random(seed)) for seed in (1, 2))
    assert [one.next_delay_s() for _ in range(3)] != [two.next_delay_s() for _ in range(3)]


@pytest.mark.parametrize(("base_s", "maximum_s"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0)])
def test_bounds_of_a_back_off_make_sense(base_s: float, maximum_s: float) -> None:
    with pytest.raises(ValueError, match="base_s"):
        Backoff(Random(1), base_s=base_s, maximum_s=maximum_s)


@given(st.text())
def test_no_text_forges_a_log_line(text: str) -> None:
    line = format_event("refused", peer=text, count=3, nothing=None)
    assert line.isascii()
    assert line.isprintable()
    assert line.startswith('refused peer="')
    assert line.endswith('" count=3 nothing=None')
    assert len(line) < 1300


def test_lines_are_limited_and_what_was_left_out_is_counted() -> None:
    clock, lines = ManualClock(), Lines()
    logger = logging.getLogger("tests.rate")
    logger.addHandler(lines)
    limited = RateLimitedLog(logger, clock, burst=2, interval_s=10.0)
    for number in range(5):
        limited.event(logging.WARNING, "refused", number=number)
    limited.event(logging.WARNING, "other")
    assert lines.lines == ["refused number=0", "refused number=1", "other"]
    clock.advance(10.0)
    limited.event(logging.WARNING, "refused", number=5)
    assert lines.lines[-1] == "refused number=5 suppressed=3"
    logger.removeHandler(lines)


def test_changed_files_are_noticed_once_per_burst(tmp_path: Path) -> None:
    path = tmp_path / "cert.pem"
    path.write_text("old")
    calls: list[int] = []

    async def main() -> None:
        watch = FileWatch(
            [str(path), str(tmp_path / "key.pem")], lambda: calls.append(1), settle_s=0.05
        )
        for number in range(5):
            path.write_text(str(number))
        await until(lambda: calls)
        seen = len(calls)
        (tmp_path / "new.pem").write_text("new")
        os.replace(tmp_path / "new.pem", path)
        await until(lambda: len(calls) > seen)
        watch.close()
        path.unlink()

    in_loop(main)
    assert len(calls) < 5


def test_the_audit_log_is_written_whatever_the_level() -> None:
    root = logging.getLogger()
    before = root.level
    try:
        start_log(LogLevel.ERROR)
        assert logging.getLogger(AUDIT).isEnabledFor(logging.INFO)
        assert not logging.getLogger("samelog.other").isEnabledFor(logging.INFO)
    finally:
        root.setLevel(before)
