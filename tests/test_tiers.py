"""Tests get markers from their fixtures, and cannot start what they have no marker for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests import test_dist, tiers
from tests.e2e import test_pasted_pages, test_readme


@pytest.mark.parametrize(
    ("command", "fixtures"),
    [
        (["java", "-version"], set()),
        (["/usr/bin/java", "-cp", "x"], {"starts_java"}),
        ([sys.executable, "-m", "tests.spark.sink_driver"], {"starts_java"}),
        ([sys.executable, "-m", "samelog", "up", "--hosts", "1"], {"starts_nodes"}),
        (["/venv/bin/samelog", "demo"], {"starts_nodes"}),
        ([sys.executable, "-m", "samelog", "topic", "list"], set()),
        ([sys.executable, "-m", "tests.cluster_sim", "--seed", "1"], {"simulates"}),
        ([sys.executable, "-m", "tests.mutants.planting", "a_bug"], {"plants_bugs"}),
        ([sys.executable, "-c", "pass"], set()),
    ],
)
def test_commands_need_fixtures(command: Sequence[str], fixtures: set[str]) -> None:
    assert tiers.needs(command) == fixtures


@pytest.mark.parametrize("fixture", tiers.MARKERS)
def test_a_test_without_the_fixture_fails_where_it_starts_something(fixture: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=fixture):
        tiers.require(fixture)


def test_a_command_is_not_started_without_its_fixture() -> None:
    with pytest.raises(pytest.fail.Exception, match="starts_nodes"):
        subprocess.run(["/nowhere/samelog", "up"], check=True)


def test_packages_are_not_built_and_blocks_not_pasted_without_a_fixture(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="builds_packages"):
        test_dist.run("false", where=tmp_path)
    with pytest.raises(pytest.fail.Exception, match="pastes_pages"):
        test_readme.paste(["false"], tmp_path, tmp_path)
    with pytest.raises(pytest.fail.Exception, match="pastes_pages"):
        test_pasted_pages.Shell._run(Mock(), ["false"])


@pytest.mark.usefixtures("simulates")
def test_fixtures_give_markers(request: pytest.FixtureRequest) -> None:
    tiers.require("simulates")
    names = {mark.name for mark in request.node.iter_markers()}
    assert names & set(tiers.MARKERS.values()) == {"world"}


def test_a_fixture_gives_its_marker_through_another_one(request: pytest.FixtureRequest) -> None:
    item = request.node
    item.fixturenames.append("starts_nodes")
    tiers.mark([item])
    tiers.require("starts_nodes")


def test_seeds_are_a_sample_usual_or_left_to_a_campaign() -> None:
    def marks(*chosen: int, **usual: Sequence[int]) -> dict[int, list[str]]:
        found = tiers.sampled(range(1, 4), *chosen, **usual)
        return {each.values[0]: [mark.name for mark in each.marks] for each in found}

    assert marks(2) == {1: [], 2: ["sample"], 3: []}
    assert marks(2, usual=(3,)) == {1: ["campaign"], 2: ["sample"], 3: []}
    assert marks(2, usual=()) == {1: ["campaign"], 2: ["sample"], 3: ["campaign"]}


def test_every_marker_is_described(pytestconfig: pytest.Config) -> None:
    described = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    assert {*tiers.MARKERS.values(), "smoke", "sample", "campaign"} <= described
