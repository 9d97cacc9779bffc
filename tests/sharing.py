"""Which process runs which tests, where several share them (`-n`).

A file's tests go to one process; those of all files that need Spark, too: a session takes long to
start, and more than one would not fit. The longest go first, so that at the end nobody waits for
one process with a long file. `tests/seconds.toml` says how long they took when that was recorded:
`make test-all ARGS=--record-seconds`. A file that is not in it is taken for a short one.

Invariant: seconds change the order, never what is run.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

SPARK = "tests/spark/"
RECORD = Path(__file__).with_name("seconds.toml")
RECORDED_FROM_S = 10
HEAD = "# Seconds of long test files, for their order: `make test-all ARGS=--record-seconds`.\n"


def share_of(test: str) -> str:
    """What goes to one process together with this test."""
    return SPARK if test.startswith(SPARK) else test.split("::", 1)[0]


def recorded() -> dict[str, int]:
    """Seconds of the shares that take long."""
    return dict(tomllib.loads(RECORD.read_text(encoding="utf-8")))


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

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Preparing and clearing up count, too."""
        self._taken[share_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """What was not run keeps its seconds."""
        seconds = {**recorded(), **{share: round(taken) for share, taken in self._taken.items()}}
        long = sorted((-taken, share) for share, taken in seconds.items())
        lines = [f'"{share}" = {-taken}\n' for taken, share in long if -taken >= RECORDED_FROM_S]
        RECORD.write_text(HEAD + "".join(lines), encoding="utf-8")
