"""Runs what is missing of a comparison, a round of a measure at a time, and rewrites the page
after each; it may be interrupted at any time.

A measure that failed twice is not tried again in the same run. Invariant: a round is added whole or
not at all.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from bench import machine
from bench.rounds import lines, page, plan
from bench.rounds.lines import Figures, Line
from bench.rounds.page import Page
from tests.campaign.digest import ROOT, commit, digest

RESULTS = ROOT / "bench" / "results"
QUICK = ROOT / "build" / "bench" / "quick"
WORK = ROOT / "build" / "bench" / "work"
"""Where clusters store: on the disk that the tree is on."""
PRODUCT = "samelog"
TRIES = 2
KIT = ("bench/machine.py", "bench/processes.py")


Run = Callable[[int], tuple[Figures, Mapping[str, str]]]
"""A round, by its number from 0: figures, and what was skipped and why."""


def kind() -> str:
    """What makes figures of two machines comparable, at least."""
    found = machine.description()
    return f"{found['processor']}, {found['cores']} cores, {found['memory_gb']} GB"


def place_of(share: float) -> Path:
    """Where results go: those of a quick look, with a share of each amount, are nothing to keep."""
    return RESULTS if share == 1 else QUICK


@dataclass(frozen=True, slots=True)
class Measure:
    """Something that is measured in rounds. `code`: what its figures depend on, beside the
    product.
    """

    name: str
    run: Run
    code: Sequence[str]
    settings: Mapping[str, Any]

    def wanted(self) -> plan.Wanted:
        """As it is in the files now."""
        code = digest([PRODUCT, *KIT, *self.code])
        return plan.Wanted(self.name, code, self.settings, kind())


class CodeChanged(Exception):
    """The files are no longer those that this process began with: what it measures from now on
    would be neither.
    """


class Rounds:
    """One comparison and its files."""

    def __init__(self, measures: Sequence[Measure], made: Page, work: Path) -> None:
        """`work`: where the measures write, whose disk is probed."""
        self._measures = {each.name: each for each in measures}
        self._wanted = {each.name: each.wanted() for each in measures}
        self._page = made
        self._work = work
        self._file = made.place / f"{made.name}.jsonl"
        self._failures: Counter[str] = Counter()

    def counting(self) -> dict[str, list[Line]]:
        """The rounds that count, of each measure."""
        known = lines.read(self._file)
        return {name: plan.counting(each, known) for name, each in self._wanted.items()}

    def failed(self) -> set[str]:
        """Measures that are not tried again in this run."""
        return {name for name, times in self._failures.items() if times >= TRIES}

    def write(self) -> None:
        """Write the page."""
        known = lines.read(self._file)
        shown = {name: plan.shown(each, known) for name, each in self._wanted.items()}
        page.write(self._page, shown)

    def advance(self, rounds: int, only: Sequence[str] = ()) -> None:
        """Run what is missing of so many rounds. Raises CodeChanged."""
        wanted = [each for each in self._wanted.values() if not only or each.name in only]
        self._page.place.mkdir(parents=True, exist_ok=True)
        with alone(self._work):
            clear(self._work)
            while each := plan.following(
                wanted, lines.read(self._file), rounds=rounds, failed=self.failed()
            ):
                self._run(each)
                self.write()

    def _run(self, wanted: plan.Wanted) -> None:
        number = len(self.counting()[wanted.name])
        sys.stderr.write(f"{wanted.name}, round {number + 1}\n")
        machine.settled()
        at, begin, load = datetime.now(UTC), time.monotonic(), machine.load()
        pace = machine.disk_pace(str(self._work))
        try:
            figures, skipped = self._measures[wanted.name].run(number)
        except Exception:  # noqa: BLE001 - whatever it was: the other measures go on
            traceback.print_exc()
            self._failures[wanted.name] += 1
            return
        if self._measures[wanted.name].wanted() != wanted:
            raise CodeChanged(f"the code of {wanted.name} changed meanwhile: run it again")
        line = Line(
            measure=wanted.name,
            code=wanted.code,
            settings=wanted.settings,
            machine=wanted.machine,
            commit=commit([PRODUCT, "bench"]),
            at=at.isoformat(timespec="seconds"),
            took_s=round(time.monotonic() - begin, 1),
            load=(load, machine.load()),
            fdatasync_ms=pace,
            figures=figures,
            skipped=skipped,
        )
        lines.add(line, self._file)


def clear(work: Path) -> None:
    """What a run that was killed has left: processes of its clusters, and their files."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(work) in word for word in words) and process.pid != os.getpid():
            process.kill()
            process.wait(timeout=10)
    for left in work.glob("*/"):
        shutil.rmtree(left, ignore_errors=True)


@contextmanager
def alone(work: Path) -> Iterator[None]:
    """Nobody else runs a comparison in this tree meanwhile."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("another comparison runs in this tree")
        yield
