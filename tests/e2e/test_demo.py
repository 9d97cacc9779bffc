"""`samelog demo`, as a user runs it: its proof, and the report that programs read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from samelog.examples.demo.picture import Course, Failure, Moment, draw, stretches
from samelog.examples.flights.data import TOTAL

PNG = b"\x89PNG\r\n\x1a\n"

KEYS = {
    "published",
    "merged",
    "unique",
    "complete",
    "identical",
    "order_kept",
    "failovers",
    "publish_seconds",
    "publishers",
    "copies",
    "delays",
    "picture",
    "seconds",
    "pipeline",
}


@pytest.mark.usefixtures("starts_nodes")
@pytest.mark.timeout(400)
def test_the_demo_proves_what_it_says_and_leaves_its_files_where_it_was_told(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "samelog", "demo", "--json", "--no-pipeline"]
    done = subprocess.run(
        [*command, "--seconds", "2", "--dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report.keys() == KEYS
    assert [report[name] for name in ("complete", "identical", "order_kept")] == [True] * 3
    assert report["published"] == report["merged"] == report["unique"] == TOTAL
    assert [each["signal"] for each in report["failovers"]] == ["SIGKILL", "SIGSTOP"]
    assert all(each["seconds"] > 0 for each in report["failovers"])
    assert len({copy["sha256"] for copy in report["copies"]}) == 1
    assert [copy["offset"] for copy in report["copies"]] == [TOTAL] * 5
    assert all(Path(copy["directory"]).is_relative_to(tmp_path) for copy in report["copies"])
    assert report["pipeline"] is None
    assert report["picture"] == str(tmp_path / "cluster.png")
    assert Path(report["picture"]).read_bytes().startswith(PNG)


def course() -> Course:
    """A hundred records a second for five minutes; the second subscriber joins in the middle."""
    samples = [
        Moment(float(at), 100 * at, max(0, 100 * at - 50), 90 * at - 9_000 if at >= 150 else None)
        for at in range(301)
    ]
    return Course(samples, [Failure(200.0, 1.5, "killed")], ["EWR", "JFK", "JFK", "LGA"] * 7_500)


def test_the_order_that_is_shown_is_around_the_failure_and_has_every_record_once() -> None:
    shown = course().around_failure()
    assert shown == range(19_950 - 6_000, 19_950 + 6_000)
    found = list(stretches(course().origins, shown))
    assert sum(count for _, count, _ in found) == len(shown)
    assert found[:3] == [(13_950, 1, "JFK"), (13_951, 1, "LGA"), (13_952, 1, "EWR")]


def test_a_short_log_is_shown_whole() -> None:
    short = Course(course().samples, [], ["EWR", "JFK", "JFK"])
    assert short.around_failure() == range(3)
    assert list(stretches(short.origins, range(3))) == [(0, 1, "EWR"), (1, 2, "JFK")]


def test_the_picture_of_a_course_is_drawn(tmp_path: Path) -> None:
    draw(course(), str(tmp_path / "cluster.png"))
    assert (tmp_path / "cluster.png").read_bytes().startswith(PNG)


@pytest.mark.usefixtures("starts_nodes")
def test_a_demo_whose_cluster_cannot_start_says_where_to_look(tmp_path: Path) -> None:
    (tmp_path / "rt-sequencer-7").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "samelog", "demo", "--no-pipeline", "--dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    log_file = tmp_path / "cluster.log"
    assert (done.returncode, done.stdout) == (1, "")
    assert f"the cluster did not start, see {log_file}" in done.stderr
    assert "holds 1 node, rt-sequencer-7, not 3" in log_file.read_text()
