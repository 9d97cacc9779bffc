"""The list of figure 2 in docs/raft.md names tests and scenarios that are there, and all tests."""

from __future__ import annotations

import re
from pathlib import Path

from tests.consensus import test_paper

DOCUMENT = Path(__file__).parents[2] / "docs" / "raft.md"
SCENARIOS = Path(__file__).parent / "scenarios"


def test_the_list_is_true() -> None:
    rules = DOCUMENT.read_text().partition("### Figure 2")[2].split("\n- ")[1:]
    table = [re.findall(r"`(\w+)`", rule)[-2:] for rule in rules]
    tests = {name.removeprefix("test_") for name in vars(test_paper) if name.startswith("test_")}
    assert {test for test, _ in table} == tests
    assert {scenario for _, scenario in table} <= {path.stem for path in SCENARIOS.glob("*.txt")}
