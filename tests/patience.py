"""How long tests wait for what must happen, and how long tests of each kind normally take.

A deadline is far above what a wait normally takes, so that a busy machine fails nothing: only what
must *not* happen is waited for shortly. Deadlines hide that a test has become slow, so a run ends
with a list of the tests that took longer than their kind should, or four times as long as
`tests/seconds.toml` says.

Invariant: a test that passes never waits for a deadline.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

import pytest

PATIENCE_S = 120.0

SHORT_S, USUAL_S, LONG_S = 5.0, 30.0, 120.0
"""What a test takes at most on a quiet machine: within this process, with a cluster or simulated
worlds, with other programs."""
LONG = ("jvm", "browser", "mutant", "docs", "dist", "campaign")
USUAL = ("cluster", "world")
SLOWER = 4
"""By that factor may a test be slower than when it was recorded."""
LISTED_MAX = 20


def expected_s(markers: Container[str]) -> float:
    """Return the seconds that a test with these markers takes at most on a quiet machine."""
    if any(marker in markers for marker in LONG):
        return LONG_S
    return USUAL_S if any(marker in markers for marker in USUAL) else SHORT_S


class SlowTests:
    """Lists the tests that took longer than they should."""

    def __init__(self, recorded: Mapping[str, float], least: float) -> None:
        """`recorded`: seconds by test; tests that it lacks took less than `least`. Empty: nothing
        was recorded.
        """
        self.found: list[tuple[float, str, float]] = []
        self._recorded, self._least = recorded, least

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Compare the test itself; fixtures may be shared."""
        limit = expected_s(report.keywords)
        if self._recorded:
            usual = self._recorded.get(report.nodeid, self._least)
            limit = min(limit, max(SHORT_S, SLOWER * usual))
        if report.when == "call" and report.duration > limit:
            self.found.append((report.duration, report.nodeid, limit))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the slowest."""
        if not self.found:
            return
        terminalreporter.section(f"{len(self.found)} slow tests")
        for taken, test, limit in sorted(self.found, reverse=True)[:LISTED_MAX]:
            terminalreporter.write_line(f"{taken:.0f} s, expected at most {limit:.0f} s: {test}")
