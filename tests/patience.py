"""How long tests wait for what must happen, and how long tests of each kind normally take.

A deadline is far above what a wait normally takes, so that a busy machine fails nothing: only what
must *not* happen is waited for shortly. A test that takes much longer than its kind should is
reported at the end of a run, because its deadlines hide that it has become slow.

Invariant: a test that passes never waits for a deadline.
"""

from __future__ import annotations

from collections.abc import Container

import pytest

PATIENCE_S = 120.0

SHORT_S, USUAL_S, LONG_S = 5.0, 30.0, 120.0
"""What a test takes at most on a quiet machine: within this process, with a cluster or simulated
worlds, with other programs."""
LONG = ("jvm", "browser", "mutant", "docs", "dist", "campaign")
USUAL = ("cluster", "world")
LISTED_MAX = 20


def expected_s(markers: Container[str]) -> float:
    """Return the seconds that a test with these markers takes at most on a quiet machine."""
    if any(marker in markers for marker in LONG):
        return LONG_S
    return USUAL_S if any(marker in markers for marker in USUAL) else SHORT_S


class SlowTests:
    """Lists the tests that took longer than their kind should."""

    def __init__(self) -> None:
        self.found: list[tuple[float, str, float]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Compare the test itself; fixtures may be shared."""
        limit = expected_s(report.keywords)
        if report.when == "call" and report.duration > limit:
            self.found.append((report.duration, report.nodeid, limit))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the slowest."""
        if not self.found:
            return
        terminalreporter.section(f"{len(self.found)} slow tests")
        for taken, test, limit in sorted(self.found, reverse=True)[:LISTED_MAX]:
            terminalreporter.write_line(f"{taken:.0f} s, expected at most {limit:.0f} s: {test}")
