"""Which process runs which tests, where several share them (`-n`).

A file's tests go to one process; those of all files that need Spark, too: a session takes long to
start, and more than one would not fit. The longest go first, so that at the end nobody waits for
one process with a long file. `tests/seconds.toml` says how long they took when that was recorded:
`make test-all ARGS=--record-seconds`. A file that is not in it is taken for a short one. The same
record has the seconds of long tests, which show what has become slow (tests/patience.py).

Invariant: seconds change the order, never what is run.
"""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

SPARK = "tests/spark/"
RECORD = Path(__file__).with_name("seconds.toml")
RECORDED_FROM_S = 10
TEST_FROM_S = 2
HEAD = "# Seconds of long test files, for their order: `make test-all ARGS=--record-seconds`.\n"
TESTS = """
# Seconds of long tests; others take less than 2 s. Slow ones are listed (tests/patience.py).
[tests]
"""


def share_of(test: str) -> str:
    """What goes to one process together with this test."""
    return SPARK if test.startswith(SPARK) else test.split("::", 1)[0]


def _read() -> dict[str, Any]:
    return tomllib.loads(RECORD.read_text(encoding="utf-8"))


def recorded() -> dict[str, int]:
    """Seconds of the shares that take long."""
    return {share: seconds for share, seconds in _read().items() if share != "tests"}


def recorded_tests() -> dict[str, int]:
    """Seconds of the tests that take long; empty if no run has recorded them."""
    return dict(_read().get("tests", {}))


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]
    """Hands out whole shares, those that take longest first."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._seconds = recorded()

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        longest = max(self.workqueue, key=lambda share: self._seconds.get(share, 0))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)


class Recorder:
    """Adds up what a run took, and writes it."""

    def __init__(self) -> None:
        self._taken = defaultdict[str, float](float)
        self._tests: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Preparing and clearing up count for a file, and not for a test."""
        self._taken[share_of(report.nodeid)] += report.duration
        if report.when == "call":
            self._tests[report.nodeid] = report.duration

    def pytest_sessionfinish(self) -> None:
        """Files and tests that were not run keep their seconds."""
        shares = _lines({**recorded(), **self._taken}, RECORDED_FROM_S)
        tests = _lines({**recorded_tests(), **self._tests}, TEST_FROM_S)
        RECORD.write_text(HEAD + shares + TESTS + tests, encoding="utf-8")


def _lines(seconds: Mapping[str, float], least: int) -> str:
    """What takes at least so long, the longest first."""
    long = sorted((-round(taken), name) for name, taken in seconds.items())
    return "".join(f"{json.dumps(name)} = {-taken}\n" for taken, name in long if -taken >= least)
