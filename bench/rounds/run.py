"""Runs what is missing of a comparison, a round of a measure at a time, and writes the page anew
after each; it may be interrupted at any time.

A measure that fails is not tried again in the same run. Invariant: a round is added whole or not at
all.
"""

from __future__ import annotations

import fcntl
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine
from bench.rounds import lines, page, plan
from bench.rounds.lines import Figures, Line
from bench.rounds.page import Page
from tests.campaign.digest import commit, digest

RESULTS = Path(__file__).resolve().parents[1] / "results"
PRODUCT = "samelog"
KIT = ("bench/machine.py", "bench/processes.py")


@dataclass(frozen=True, slots=True)
class Measure:
    """Something that is measured in rounds. `run` gets the number of the round, from 0, and gives
    figures and what was skipped; `code`: what its figures depend on, beside the product.
    """

    name: str
    run: Callable[[int], tuple[Figures, Mapping[str, str]]]
    code: Sequence[str]
    settings: Mapping[str, Any]

    def wanted(self) -> plan.Wanted:
        """As it is now: the code may change between two rounds."""
        return plan.Wanted(self.name, digest([PRODUCT, *KIT, *self.code]), self.settings)


class Rounds:
    """One comparison and its files."""

    def __init__(self, measures: Sequence[Measure], made: Page, work: Path) -> None:
        """`work`: where the measures write, whose disk is probed."""
        self._measures = measures
        self._page = made
        self._work = work
        self._file = made.place / f"{made.name}.jsonl"
        self.failed: set[str] = set()

    def state(self) -> dict[str, int]:
        """How many rounds of each measure there are."""
        known = lines.read(self._file)
        return {each.name: len(plan.counting(each.wanted(), known)) for each in self._measures}

    def write(self) -> None:
        """Write the page."""
        known = lines.read(self._file)
        wanted = [each.wanted() for each in self._measures]
        page.write(self._page, {each.name: plan.counting(each, known) for each in wanted})

    def advance(self, rounds: int, only: Sequence[str] = ()) -> None:
        """Run what is missing of so many rounds."""
        chosen = [each for each in self._measures if not only or each.name in only]
        self._page.place.mkdir(parents=True, exist_ok=True)
        with alone(self._work):
            while each := self._next(chosen, rounds):
                self._run(*each)
                self.write()

    def _next(self, chosen: Sequence[Measure], rounds: int) -> tuple[Measure, plan.Wanted] | None:
        wanted = [each.wanted() for each in chosen]
        known = lines.read(self._file)
        found = plan.following(wanted, known, rounds=rounds, failed=self.failed)
        return None if found is None else (chosen[wanted.index(found)], found)

    def _run(self, measure: Measure, wanted: plan.Wanted) -> None:
        number = len(plan.counting(wanted, lines.read(self._file)))
        sys.stderr.write(f"{measure.name}, round {number + 1}\n")
        machine.settled()
        at, begin, load = datetime.now(UTC), time.monotonic(), machine.load()
        pace = machine.disk_pace(str(self._work))
        try:
            figures, skipped = measure.run(number)
        except Exception:  # noqa: BLE001 - whatever it was: the other measures go on
            traceback.print_exc()
            self.failed.add(measure.name)
            return
        line = Line(
            measure=wanted.name,
            code=wanted.code,
            settings=wanted.settings,
            commit=commit([PRODUCT, "bench"]),
            at=at.isoformat(timespec="seconds"),
            took_s=round(time.monotonic() - begin, 1),
            load=(load, machine.load()),
            fdatasync_ms=pace,
            figures=figures,
            skipped=skipped,
        )
        if measure.wanted() == wanted:
            lines.add(line, self._file)
        else:
            sys.stderr.write(f"{measure.name}: the code changed meanwhile; runs again\n")


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
