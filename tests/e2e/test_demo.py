"""`samelog demo`, as a user runs it: its proof, and the report that programs read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from samelog.examples.flights.data import TOTAL

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
    "seconds",
    "pipeline",
}


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
    assert "holds a cluster of rt-sequencer-7, and --nodes is 3" in log_file.read_text()
