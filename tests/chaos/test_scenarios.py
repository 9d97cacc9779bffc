"""A few scenarios, briefly, with every test run; all of them, for longer: `make chaos`."""

from __future__ import annotations

import pytest

from tests.chaos import programs, scenarios
from tests.chaos.registry import SCENARIOS
from tests.chaos.run import SKIPPED, run_scenario

FAST = ("kill-leader", "power-all", "kafka-kill-leader")
SECONDS = 3.0


def test_scenarios_are_registered() -> None:
    assert scenarios.__all__
    assert all(entry.what for entry in SCENARIOS.values())


@pytest.mark.usefixtures("starts_nodes")
@pytest.mark.parametrize("name", FAST)
def test_promises_are_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "forks", True)
    row = run_scenario(SCENARIOS[name], seed=1, seconds=SECONDS, keep=False)
    if row.verdict == SKIPPED:
        pytest.skip(row.remarks[0])
    assert row.verdict == SCENARIOS[name].expect.value, row
    assert row.merged > 0
    assert row.acknowledged > 0
