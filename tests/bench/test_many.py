"""`python -m bench many`: rows fit what is measured, metrics are read as written, the product of
another checkout runs below these benchmarks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from bench.kafka.nodes import changed
from bench.many import checkouts, rows
from bench.many.__main__ import CODE, one_round
from bench.many.checkouts import Checkout, RowFailed, other
from bench.many.measure import KINDS
from bench.many.metrics import COMMIT, LOOP, SYNC, figures, histogram, parse
from bench.meter import Meter, disk_written
from samelog.cli.local_cluster import LocalCluster
from tests.campaign.digest import ROOT


class TestRows:
    def test_rows_have_names_of_their_own(self) -> None:
        names = Counter(row.row for row in rows.table())
        assert [name for name, count in names.items() if count > 1] == []

    def test_every_row_is_measured_and_no_kind_is_left_over(self) -> None:
        assert {load.run for load in rows.LOADS.values()} == set(KINDS)

    def test_a_target_belongs_to_a_figure_that_is_shown(self) -> None:
        for load in rows.LOADS.values():
            assert load.targets.keys() <= load.shown.keys()

    def test_a_quick_look_has_fewer_things_at_the_same_rates(self) -> None:
        load = rows.LOADS["sidecar-1000"]
        found = rows.amounts(load, 0.01, 2.0)
        assert found == {"sessions": 10, "rate": 1, "seconds": 2.0, "patience": 120}
        assert "seconds" not in rows.amounts(rows.LOADS["first-record"], 1, 2.0)

    def test_what_a_row_depends_on_is_there(self) -> None:
        assert [path for path in CODE if not (ROOT / path).exists()] == []


class TestConfiguration:
    def test_numbers_are_replaced(self) -> None:
        text = 'sessions = ["*"]\n\n[quotas]\nsessions = 1000\n'
        assert changed(text, {"sessions": 5}).endswith("[quotas]\nsessions = 5\n")

    def test_a_key_that_is_not_there_is_an_error(self) -> None:
        with pytest.raises(KeyError, match="sessions"):
            changed("[quotas]\n", {"sessions": 5})

    def test_nodes_have_the_keys_that_rows_set(self, tmp_path: Path) -> None:
        cluster = LocalCluster(str(tmp_path / "c"))
        cluster.prepare()
        text = Path(cluster.nodes[0].config_file).read_text(encoding="utf-8")
        for load in rows.LOADS.values():
            assert changed(text, load.limits).count("\n") == text.count("\n")


TEXT = """\
# HELP samelog_fsync_seconds Time of one sync.
samelog_fsync_seconds_bucket{files="raft",le="0.001"} %d
samelog_fsync_seconds_bucket{files="raft",le="0.01"} %d
samelog_fsync_seconds_bucket{files="raft",le="+Inf"} %d
samelog_fsync_seconds_count{files="raft"} %d
samelog_fsync_seconds_sum{files="raft"} %s
samelog_sidecar_session_connected_nodes{session="a"} 3.0
samelog_sidecar_session_connected_nodes{session="other"} 6.0
"""


class TestMetrics:
    before, after = parse(TEXT % (1, 1, 1, 1, 0.5)), parse(TEXT % (51, 101, 101, 101, 0.9))

    def test_a_gauge_is_the_sum_of_its_series(self) -> None:
        assert self.before["samelog_sidecar_session_connected_nodes"] == 9

    def test_a_histogram_is_what_a_window_added(self) -> None:
        found = histogram(SYNC, self.before, self.after)
        assert found is not None
        assert found.number == 100
        assert found.mean_ms == pytest.approx(4.0)
        assert found.at_ms(0.5) == pytest.approx(1.0)
        assert 1 < found.at_ms(0.99) <= 10

    def test_a_window_in_which_nothing_was_counted_has_no_times(self) -> None:
        found = histogram(SYNC, self.after, self.after)
        assert found is not None
        assert (found.mean_ms, found.at_ms(0.99)) == (0, 0)

    def test_a_process_without_the_metric_gives_no_figure(self) -> None:
        assert histogram(COMMIT, self.before, self.after) is None
        assert figures([({}, {})] * 3, 1.0) == {}

    def test_the_leader_commits_and_the_faster_follower_counts(self) -> None:
        def node(commits: int, sync_s: float) -> tuple[dict[str, float], dict[str, float]]:
            found = {}
            for name, total in ((COMMIT, 0.0), (LOOP, 0.0), (SYNC, sync_s)):
                plain, _, labels = name.rstrip("}").partition("{")
                bound = f"{labels},le" if labels else "le"
                ends = f"{{{labels}}}" if labels else ""
                number = commits if name == COMMIT else 10
                found[f'{plain}_bucket{{{bound}="1"}}'] = float(number)
                found[f"{plain}_count{ends}"] = float(number)
                found[f"{plain}_sum{ends}"] = total
            return {}, found

        found = figures([node(0, 0.2), node(20, 0.1), node(0, 0.5)], 2.0)
        assert (found["rounds_per_s"], found["syncs_per_s"]) == (10, 15)
        assert found["leader_sync_mean_ms"] == pytest.approx(10)
        assert found["follower_sync_mean_ms"] == pytest.approx(20)


class TestCheckouts:
    def test_another_checkouts_product_runs_below_these_benchmarks(self, tmp_path: Path) -> None:
        tree = tmp_path / "tree"
        (tree / "samelog").mkdir(parents=True)
        (tree / "samelog" / "__init__.py").write_text("THIS = 'the other one'\n", encoding="utf-8")
        python = tree / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
        python.chmod(0o755)
        found = other(tree, tmp_path / "work")
        code = "import samelog, bench.many.rows as r; print(samelog.THIS, len(r.LOADS))"
        told = subprocess.run(
            [found.python, "-c", code],
            cwd=found.directory,
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stdout == f"the other one {len(rows.LOADS)}\n"

    def test_a_tree_that_is_not_set_up_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SystemExit, match="make setup"):
            other(tmp_path, tmp_path / "work")

    def test_a_row_that_takes_too_long_ends_with_all_it_started(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also what it started in sessions of their own, as nodes are."""
        monkeypatch.setattr(checkouts, "LIMIT_S", 2.0)
        work, pid_file = tmp_path / "work", tmp_path / "pid"
        work.mkdir()
        script = tmp_path / "python"
        node = f"setsid sh -c 'sleep 600; : {work}' & echo $! > {pid_file}"
        script.write_text(f"#!/bin/sh\n{node}\nsleep 600\n", encoding="utf-8")
        script.chmod(0o755)
        side = Checkout(rows.PRESENT, str(script), tmp_path, "1234567")
        with pytest.raises(RowFailed, match="took more than 2 s"):
            side.run("single-50", {}, work)
        left = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if p.pid != os.getpid()]
        assert [words for words in left if any(str(work) in word for word in words or ())] == []
        assert list(work.iterdir()) == []

    def test_checkouts_take_turns_and_one_that_fails_leaves_the_other_ones_figures(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran: list[str] = []

        def run(
            side: Checkout, row: str, amounts: Mapping[str, object], work: Path
        ) -> dict[str, float]:
            ran.append(side.name)
            if side.name == rows.BEFORE:
                raise RowFailed("meant")
            return {"p50_ms": 1.0}

        monkeypatch.setattr(Checkout, "run", run)
        sides = [Checkout(name, "", ROOT, "") for name in (rows.PRESENT, rows.BEFORE)]
        found = [one_round(sides, "single-50", {}, number) for number in (0, 1)]
        assert ran == [rows.PRESENT, rows.BEFORE, rows.BEFORE, rows.PRESENT]
        assert found[0] == ({rows.PRESENT: {"p50_ms": 1.0}}, {rows.BEFORE: "meant"})
        with pytest.raises(RowFailed, match="meant"):
            one_round(sides[1:], "single-50", {}, 0)


class TestMeter:
    def test_a_window_has_the_processor_time_and_calls_of_its_processes(self) -> None:
        meter = Meter(lambda: [os.getpid()])
        with meter.window() as spent:
            begun = time.process_time()
            while time.process_time() < begun + 0.1:
                Path(__file__).read_bytes()
        assert spent.cpu_s > 0.05
        assert spent.reads > 0
        assert spent.waited_s >= 0
        assert meter.total.cores == pytest.approx(spent.cores)

    def test_bytes_to_disk_are_counted_where_there_is_a_disk(self, tmp_path: Path) -> None:
        before = disk_written(str(tmp_path))
        if before is None:
            pytest.skip("the temporary directory is on no disk")
        with (tmp_path / "file").open("wb", buffering=0) as file:
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
        after = disk_written(str(tmp_path))
        assert after is not None
        assert after - before >= 1 << 20
