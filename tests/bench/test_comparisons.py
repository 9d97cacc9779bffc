"""What the comparisons compare: their rows fit what is measured, and what is fetched is checked."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from bench import dolphindb, maven
from bench.dolphindb import Cell, writes_of
from bench.kafka import rows
from bench.kafka.failover import gap
from bench.kafka.measures import AMOUNTS, fewer, in_turn, measures
from bench.kafka.rig import Rig
from bench.rounds.rows import Row
from tests.campaign.digest import ROOT

BENCH = ROOT / "bench"


def every_row() -> list[Row]:
    return [*rows.all_rows(), *dolphindb.rows()]


def test_rows_have_names_of_their_own() -> None:
    for found in (rows.all_rows(), list(dolphindb.rows())):
        assert [name for name, count in Counter(x.row for x in found).items() if count > 1] == []


def test_every_row_is_measured(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        assert [each.name for each in measures(rig, AMOUNTS)] != []
        assert {each.name for each in measures(rig, AMOUNTS)} == set(AMOUNTS)
    assert {row.measure for row in rows.all_rows()} == set(AMOUNTS)
    assert {each.measure for each in rows.charts()} <= set(AMOUNTS)


def test_what_a_measure_depends_on_is_there(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        named = {path for each in measures(rig, AMOUNTS) for path in each.code}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_targets_of_the_table() -> None:
    by_name = {row.row: row.target for row in rows.all_rows()}

    def text(name: str, disk_ms: float = 0.1) -> str:
        target = by_name[name]
        assert target is not None
        return target.text(disk_ms)

    assert (text("a-1000"), text("a-1000", 2.0), text("a-100-default")) == (
        "≥ 2 ×",
        "≥ 3 ×",
        "≥ 1.2 ×",
    )
    assert (text("c-1000"), text("c-100"), text("e-1000")) == ("≤ 16", "≤ 25", "≥ 0.6 ×")
    assert (text("b-p50"), text("b-p99-default"), text("b-cores")) == (
        "≤ 0.6 ×",
        "≤ 1.5 ×",
        "≤ 0.4",
    )
    assert (text("d-trip-p50-100"), text("g-descriptors-more")) == ("≤ 0.7 ×", "≤ 2,500")
    assert by_name["d-plaintext-trip-p50-100"] is None


def test_a_quick_look_has_smaller_amounts_at_the_same_rates() -> None:
    found = fewer({"megabytes": {"1000": 200}, "rate": 1000, "records": 50}, 0.1)
    assert found == {"megabytes": {"1000": 20}, "rate": 1000, "records": 5}


def test_systems_take_turns() -> None:
    assert [in_turn("abc", number) for number in (0, 1, 3)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["a", "b", "c"],
    ]


@pytest.mark.parametrize(
    ("times", "fault", "expected"),
    [
        ([1.0, 2.0, 2.5, 9.0], 2.6, 6.5),
        ([1.0, 9.0, 9.1, 9.2], 9.0, pytest.approx(0.1)),
        ([1.0], 2.0, 0.0),
    ],
)
def test_a_gap_begins_with_the_last_acknowledgement_before_the_fault(
    times: list[float], fault: float, expected: float
) -> None:
    assert gap(times, fault) == expected


class TestMaven:
    def test_jars_that_differ_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "a.jar").write_bytes(b"a")
        (tmp_path / "b.jar").write_bytes(b"b")
        wanted = maven.parse(
            "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  a.jar\n"
            "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  c.jar\n"
        )
        assert maven.differing(wanted, tmp_path) == ["b.jar", "c.jar"]

    def test_every_artifact_that_is_asked_for_is_pinned(self) -> None:
        for name, artifacts in maven.ARTIFACTS.items():
            pinned = maven.parse((maven.HASHES / f"{name}.sha256").read_text(encoding="ascii"))
            assert {f"{each}-{version}.jar" for _, each, version in artifacts} <= set(pinned)
            assert all(re.fullmatch("[0-9a-f]{64}", each) for each in pinned.values())


class TestDolphinDB:
    def test_the_published_table_has_every_cell(self) -> None:
        assert len(dolphindb.published()) == len(dolphindb.cells()) == 16
        assert dolphindb.published()["rows_per_s.211.4.10000"] == 67_816.2

    def test_a_cell_is_as_large_as_rows_or_bytes_allow(self) -> None:
        amounts = {"rows": {"1": 1000, "10000": 1_000_000}, "most_megabytes": 50}
        assert writes_of(Cell(11, 1, 1), amounts) == 1000
        assert writes_of(Cell(11, 4, 1), amounts) == 250
        assert writes_of(Cell(211, 1, 10_000), amounts) == 2
        assert writes_of(Cell(211, 4, 10_000), amounts) == 1


def test_clients_of_kafka_are_one_program() -> None:
    """Nobody but the client programs makes a producer or consumer for a measurement."""
    makers = {"Producer", "Consumer"}
    found = set()
    for path in (BENCH / "kafka").glob("*.py"):
        called = [x.func for x in ast.walk(ast.parse(path.read_text())) if isinstance(x, ast.Call)]
        if any(isinstance(each, ast.Name) and each.id in makers for each in called):
            found.add(path.name)
    assert found == {"client.py"}
