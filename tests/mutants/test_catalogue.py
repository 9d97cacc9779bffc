"""The list of planted bugs in docs/reliability.md is whole, and bugs that tests must find are."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.mutants.by_tests import PLANTED
from tests.mutants.catalogue import (
    CLUSTER_RULES,
    GROUP_RULES,
    REPORT,
    listed,
    reported_seeds,
    rows,
)
from tests.tables import with_tables


def test_every_planted_bug_has_a_rule_and_an_entry_in_the_report() -> None:
    found = list(rows())
    assert all(row.rule for row in found)
    assert {*GROUP_RULES, *CLUSTER_RULES} <= {row.name for row in found}
    assert reported_seeds().keys() == {row.name for row in found if row.is_simulated}
    text = REPORT.read_text(encoding="utf-8")
    assert with_tables(text, {"the planted bugs": listed()}) == text, "run make docs"


def test_every_rule_has_a_planted_bug() -> None:
    pages = (REPORT.parent / "design" / "invariants").glob("*.md")
    texts = [page.read_text(encoding="utf-8") for page in pages]
    named = {f"rule {n}" for t in texts for n in re.findall(r"^## (\w+\.\d+): ", t, re.MULTILINE)}
    assert len(named) > 40
    assert named - {row.rule for row in rows()} == set()


def test_every_test_that_must_find_a_bug_exists() -> None:
    """Only some of the bugs are planted in each run; this holds for all."""
    for planted in PLANTED:
        path, *_, name = planted.test.partition("[")[0].split("::")
        text = (REPORT.parents[1] / path).read_text(encoding="utf-8")
        assert f"def {name}(" in text, planted.test


NAMES = [planted.mutant.__name__ for planted in PLANTED]


@pytest.mark.usefixtures("plants_bugs")
@pytest.mark.parametrize(
    "names",
    [NAMES[::24], pytest.param(NAMES, marks=[pytest.mark.campaign, pytest.mark.timeout(600)])],
    ids=["some", "all"],
)
def test_bugs_that_a_test_must_find_are_found(names: list[str]) -> None:
    command = [sys.executable, "-m", "tests.mutants.planting", *names]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
