"""Replaying records in their own time: the pace, and the command."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from samelog.subscriber.replay import FOREVER, Pace
from tests.patience import PATIENCE_S
from tests.subscriber.merged import Growing

HOUR_MS = 3_600_000


def subscribe(root: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "samelog", "subscribe", "--topic", "t", "--dir", str(root)]
    return subprocess.Popen(
        [*command, "--no-follow", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_gaps_are_those_of_the_records_divided_by_the_speed() -> None:
    pace = Pace(2.0)
    assert pace.wait_s(5000, 100.0) == 0
    assert pace.wait_s(9000, 100.5) == 1.5
    assert pace.wait_s(4000, 101.0) == 0
    assert pace.wait_s(9000, 103.0) == 0


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=50), st.floats(0.1, 100))
def test_a_record_is_shown_when_its_time_has_come(times: list[int], speed: float) -> None:
    pace, now = Pace(speed, FOREVER), 0.0
    for at in times:
        now += pace.wait_s(at, now)
        pace.passed(at)
        assert now * 1000 * speed >= at - times[0] - 1e-3


@given(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=20),
    st.floats(1e-3, 1e9),
    st.floats(1e-3, 1e3),
)
def test_no_wait_is_longer_than_max_gap(times: list[int], speed: float, max_gap: float) -> None:
    pace, now = Pace(speed, max_gap), 0.0
    for at in times:
        wait_s = pace.wait_s(at, now)
        assert wait_s <= max_gap * (1 + 1e-9)
        now += wait_s
        pace.passed(at)


def test_a_wrong_timestamp_delays_only_itself() -> None:
    pace, now, waits = Pace(1.0, 10.0), 100.0, []
    for at in (0, 1000, 10**16, 2000, 4000, 10**16 + 1, 5000):
        waits.append(pace.wait_s(at, now))
        now += waits[-1]
        pace.passed(at)
    assert waits == [0, 1, 10, 1, 2, 0, 1]


def test_the_command_waits_no_longer_than_it_is_told(tmp_path: Path) -> None:
    Growing(tmp_path).append(b"a", b"b", timestamp=[0, HOUR_MS])
    with subscribe(tmp_path, "--replay", "--max-gap", "0.2") as replaying:
        out, err = replaying.communicate(timeout=PATIENCE_S)
    assert out.split() == ["a", "b"]
    assert "t-0, offset 1, whose timestamp is 3600000 ms (1970-01-01T01:00:00.000+00:00)" in err
    with subscribe(tmp_path, "--max-gap", "1") as refused:
        _, err = refused.communicate(timeout=PATIENCE_S)
    assert (refused.returncode, "max_gap" in err) == (2, True)


def test_the_command_waits_between_records(tmp_path: Path) -> None:
    Growing(tmp_path).append(b"a", b"b", b"c", timestamp=[0, HOUR_MS // 2, HOUR_MS])
    with subscribe(tmp_path, "--replay", "--speed", "3600") as replaying:
        assert replaying.stdout is not None
        lines = [(line, time.monotonic()) for line in replaying.stdout]
        assert replaying.wait(PATIENCE_S) == 0
    assert [line for line, _ in lines] == ["a\n", "b\n", "c\n"]
    assert lines[-1][1] - lines[0][1] >= 0.5


def test_what_was_not_shown_comes_again(tmp_path: Path) -> None:
    Growing(tmp_path).append(b"a", b"b", timestamp=[0, HOUR_MS])
    with subscribe(tmp_path, "--replay", "--name", "n") as replaying:
        assert replaying.stdout is not None
        assert replaying.stdout.readline() == "a\n"
        replaying.send_signal(signal.SIGINT)
        assert replaying.wait(PATIENCE_S) == 0
    out, _ = subscribe(tmp_path, "--name", "n").communicate(timeout=PATIENCE_S)
    assert out == "b\n"


def test_partitions_are_shown_in_one_time(tmp_path: Path) -> None:
    Growing(tmp_path).append(b"a", b"d", timestamp=[0, HOUR_MS])
    Growing(tmp_path, partition=1).append(b"b", b"c", timestamp=[HOUR_MS // 3, HOUR_MS // 2])
    out, _ = subscribe(tmp_path, "--replay", "--speed", "3600").communicate(timeout=PATIENCE_S)
    assert out.split() == ["a", "b", "c", "d"]
    out, _ = subscribe(tmp_path, "--replay", "--speed", "36000", "--partition", "1").communicate(
        timeout=PATIENCE_S
    )
    assert out.split() == ["b", "c"]


def test_a_speed_is_of_a_replay(tmp_path: Path) -> None:
    _, error = (ended := subscribe(tmp_path, "--speed", "2")).communicate(timeout=PATIENCE_S)
    assert (ended.returncode, "--replay" in error) == (2, True)
