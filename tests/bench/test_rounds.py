"""Comparisons in rounds: which round is next, what rows come to, what is kept when a run is cut."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest

from bench.meter import WAITED
from bench.rounds import lines, page
from bench.rounds.chart import Bar, chart
from bench.rounds.lines import Figures, Line
from bench.rounds.page import Chart, Page
from bench.rounds.plan import Wanted, counting, following, shown
from bench.rounds.rows import Figure, Row, Target, result
from bench.rounds.run import CodeChanged, Measure, Rounds, Run, clear

A = Wanted("a", "code", {"megabytes": 10}, "2 cores")
B = Wanted("b", "code", {}, "2 cores")
ROW = Row(
    row="r",
    what="rate",
    unit="MB/s",
    measure="a",
    ours=Figure("samelog", "rate"),
    peer=Figure("kafka", "rate"),
    target=Target(at_least=2, slow_disk=3),
)


def line(wanted: Wanted = A, *, disk_ms: float = 0.4, **figures: float | list[float]) -> Line:
    return Line(
        measure=wanted.name,
        code=wanted.code,
        settings=wanted.settings,
        machine=wanted.machine,
        commit="1234567",
        at="2026-01-01T00:00:00+00:00",
        took_s=1.5,
        load=(1.0, 2.0),
        fdatasync_ms={"p50": disk_ms, "p99": 9.0},
        figures={name: {"rate": figure} for name, figure in figures.items()},
    )


class TestPlan:
    def test_every_measure_gets_a_round_before_one_gets_two(self) -> None:
        assert following([A, B], [], rounds=2) == A
        assert following([A, B], [line(A)], rounds=2) == B
        assert following([A, B], [line(A), line(B)], rounds=2) == A
        assert following([A, B], [line(A), line(B)], rounds=1) is None

    def test_a_run_that_was_cut_goes_on_where_it_was(self) -> None:
        there = [line(A), line(A), line(B)]
        assert following([A, B], there, rounds=2) == B

    @pytest.mark.parametrize(
        "other",
        [
            replace(A, code="other"),
            replace(A, settings={"megabytes": 1}),
            replace(A, machine="64 cores"),
        ],
    )
    def test_rounds_of_other_code_amounts_or_machines_do_not_count(self, other: Wanted) -> None:
        assert counting(A, [line(other), line(A)]) == [line(A)]
        assert following([A], [line(other)], rounds=1) == A

    def test_the_page_shows_the_newest_rounds_of_older_code_where_none_count(self) -> None:
        """But none of other amounts, or of another machine."""
        first, second = replace(A, code="first"), replace(A, code="second")
        elsewhere = replace(A, code="third", machine="64 cores")
        older = [line(first), line(second), line(B), line(second), line(elsewhere)]
        assert shown(A, older) == [line(second), line(second)]
        assert shown(A, [*older, line(A)]) == [line(A)]
        assert shown(A, [line(B)]) == []

    def test_what_failed_is_not_tried_again(self) -> None:
        assert following([A, B], [], rounds=1, failed={"a"}) == B
        assert following([A, B], [line(B)], rounds=1, failed={"a"}) is None


class TestLines:
    def test_lines_come_back_as_they_were(self, tmp_path: Path) -> None:
        file = tmp_path / "new" / "results.jsonl"
        lines.add(line(samelog=1.0), file)
        lines.add(line(samelog=[2.0, 3.0]), file)
        found = lines.read(file)
        assert [each.figures for each in found] == [
            {"samelog": {"rate": 1.0}},
            {"samelog": {"rate": [2.0, 3.0]}},
        ]
        assert counting(A, found) == found

    def test_a_line_that_was_cut_off_counts_for_nothing(self, tmp_path: Path) -> None:
        file = tmp_path / "results.jsonl"
        lines.add(line(samelog=1.0), file)
        whole = file.read_bytes()
        file.write_bytes(whole + whole[:40])
        lines.add(line(samelog=2.0), file)
        found = lines.read(file)
        assert [each.figures["samelog"]["rate"] for each in found] == [1.0, 2.0]

    def test_nothing_is_there_at_first(self, tmp_path: Path) -> None:
        assert lines.read(tmp_path / "results.jsonl") == []


class TestRows:
    def found(self, there: list[Line], row: Row = ROW) -> dict[str, Any]:
        return result(row, there)

    def test_a_row_is_medians_ranges_and_their_ratio(self) -> None:
        there = [line(samelog=each, kafka=10.0) for each in (20.0, 90.0, 30.0)]
        found = self.found(there)
        assert (found["ours"], found["peer"], found["ratio"]) == (30.0, 10.0, 3.0)
        assert (found["ours_range"], found["peer_range"]) == ([20.0, 90.0], [10.0, 10.0])
        assert (found["met"], found["rounds"]) == (True, 3)

    @pytest.mark.parametrize(("ratio", "met"), [(2.0, True), (1.99, False)])
    def test_a_bound_from_below(self, ratio: float, met: bool) -> None:
        found = self.found([line(samelog=ratio, kafka=1.0)])
        assert (found["target"], found["met"]) == ("≥ 2 ×", met)

    @pytest.mark.parametrize(("ratio", "met"), [(3.0, True), (2.5, False)])
    def test_a_slow_disk_has_a_bound_of_its_own(self, ratio: float, met: bool) -> None:
        found = self.found([line(disk_ms=1.0, samelog=ratio, kafka=1.0)])
        assert (found["target"], found["met"]) == ("≥ 3 ×", met)

    @pytest.mark.parametrize(("own", "met"), [(16.0, True), (16.1, False)])
    def test_a_bound_of_our_own_figure_needs_no_peer(self, own: float, met: bool) -> None:
        row = replace(ROW, target=Target(at_most=16, of_ours=True))
        found = self.found([line(samelog=own)], row)
        assert (found["target"], found["met"], found["ratio"]) == ("≤ 16", met, None)

    def test_without_figures_a_row_is_neither_met_nor_missed(self) -> None:
        assert self.found([])["met"] is None
        found = self.found([line(samelog=5.0)])
        assert (found["ours"], found["ratio"], found["met"]) == (5.0, None, None)

    def test_the_worst_of_all_rounds(self) -> None:
        there = [line(samelog=[0.1, 0.9]), line(samelog=[0.2, 0.3])]
        row = replace(ROW, target=Target(at_most=1, of_ours=True))
        assert self.found(there, replace(row, worst=True))["ours"] == 0.9
        assert self.found(there, row)["ours"] == 0.25

    def test_a_row_says_how_long_the_nodes_of_both_systems_waited(self) -> None:
        there = [line(samelog=5.0, kafka=1.0) for _ in range(2)]
        for number, each in enumerate(there):
            waited = {"samelog": {"rate": 5.0, WAITED: 0.5 + number}, "kafka": {"rate": 1.0}}
            there[number] = replace(each, figures=waited)
        found = self.found(there)
        assert (found["ours_waited"], found["peer_waited"]) == (1.0, None)
        assert page.table([found]).endswith("| 2 | 1.00 |")

    def test_a_target_without_a_bound_is_refused(self) -> None:
        with pytest.raises(ValueError, match="without a bound"):
            Target().bound(0.0)


class TestPage:
    def page(self, place: Path) -> Page:
        bars = {"samelog": Figure("samelog", "rate"), "Kafka": Figure("kafka", "rate")}
        charts = [
            Chart("rate", "Rate", "MB/s", "a", bars, ("samelog",)),
            Chart("none", "None", "MB/s", "b", bars, ("samelog",)),
        ]
        return Page(place, "kafka", "Beside Kafka", [ROW], charts, "Notes.")

    def test_a_page_says_what_was_measured_and_how(self, tmp_path: Path) -> None:
        page.write(self.page(tmp_path), {"a": [line(samelog=30.0, kafka=20.0)], "b": []})
        made = {path.name for path in tmp_path.iterdir()}
        assert made == {"kafka.json", "kafka.md", "kafka-rate.svg"}
        text = (tmp_path / "kafka.md").read_text(encoding="utf-8")
        assert "| r | rate, MB/s | 30 (30–30) | 20 (20–20) | 1.5 | ≥ 2 × | **no** | 1 |  |" in text
        assert "| a | 1 | 1234567 | 1–2 | 0.40 | megabytes: 10 |  |" in text


def test_a_chart_is_well_formed_and_has_a_bar_for_all_that_was_measured() -> None:
    bars = [Bar("a < b", [1.0, 2.0, 9.0], is_ours=True), Bar("c", [], is_ours=False)]
    drawn = ElementTree.fromstring(chart("Rate & more", "MB/s", bars))
    names = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert names == ["Rate & more, MB/s", "a < b", "2"]


def test_what_a_killed_run_left_is_cleared_away(tmp_path: Path) -> None:
    left = tmp_path / "round-1"
    left.mkdir()
    command = [sys.executable, "-c", "import time; time.sleep(600)", str(left)]
    with subprocess.Popen(command) as orphan:
        clear(tmp_path)
        assert not psutil.pid_exists(orphan.pid)
    assert not left.exists()


class TestRun:
    @pytest.fixture(autouse=True)
    def quiet_disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Waiting for everybody's disk writes is not what is tested."""
        monkeypatch.setattr("bench.machine.settled", lambda: None)
        monkeypatch.setattr("bench.machine.disk_pace", lambda _: {"p50": 0.1, "p99": 0.2})

    def rounds(self, place: Path, ran: list[tuple[str, int]], **broken: bool) -> Rounds:
        def runner(name: str) -> Run:
            def run(number: int) -> tuple[Figures, Mapping[str, str]]:
                ran.append((name, number))
                if broken.get(name):
                    raise RuntimeError("meant")
                return {"samelog": {"rate": 5.0}, "kafka": {"rate": 1.0}}, {}

            return run

        measures = [Measure(name, runner(name), ("bench/machine.py",), {}) for name in ("a", "b")]
        made = Page(place / "results", "kafka", "Beside Kafka", [ROW], [], "Notes.")
        return Rounds(measures, made, place / "work")

    def test_a_run_goes_on_where_the_one_before_ended(self, tmp_path: Path) -> None:
        ran: list[tuple[str, int]] = []
        self.rounds(tmp_path, ran).advance(1)
        self.rounds(tmp_path, ran).advance(2)
        assert ran == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
        found = json.loads((tmp_path / "results" / "kafka.json").read_text(encoding="utf-8"))
        assert [(row["rounds"], row["met"]) for row in found["rows"]] == [(2, True)]

    def test_what_fails_twice_is_given_up_and_leaves_no_round(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ran: list[tuple[str, int]] = []
        rounds = self.rounds(tmp_path, ran, a=True)
        rounds.advance(1)
        assert ran == [("a", 0), ("a", 0), ("b", 0)]
        assert rounds.failed() == {"a"}
        assert {name: len(there) for name, there in rounds.counting().items()} == {"a": 0, "b": 1}
        assert "meant" in capsys.readouterr().err

    def test_code_that_changes_meanwhile_ends_the_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rounds = self.rounds(tmp_path, [])
        monkeypatch.setattr("bench.rounds.run.digest", lambda _: "other")
        with pytest.raises(CodeChanged):
            rounds.advance(1)
        assert rounds.counting() == {"a": [], "b": []}
