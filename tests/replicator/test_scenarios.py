"""Scenarios of the four ends of push and pull connections (tests/replicator/ends.py)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests import scenario_files
from tests.replicator.ends import END_SCRIPTS


@pytest.mark.parametrize("end", END_SCRIPTS)
def test_every_end_has_scenarios(end: str) -> None:
    assert len(scenario_files.files(__file__, f"{end}_*.txt")) >= 3


@pytest.mark.parametrize("path", scenario_files.files(__file__), ids=lambda path: path.stem)
def test_scenario(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    script = END_SCRIPTS["_".join(path.stem.split("_")[:2])]
    with closing(script(tmp_path)) as made:
        scenario_files.check(path, made, request)
