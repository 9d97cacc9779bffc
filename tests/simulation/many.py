"""Many worlds of one simulator, and what there is to say of them all.

Invariant: a world that fails is told of as soon as it is known; the rest goes on only if asked for.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Protocol, TypeVar

from tests.simulation.parallel import in_order
from tests.simulation.progress import shown


class Simulated(Protocol):
    """How a world went."""

    @property
    def simulated_s(self) -> float:
        """How long it lasted, by its own clock."""


ResultT = TypeVar("ResultT", bound=Simulated)


def seeds_of(arguments: argparse.Namespace) -> range:
    """The seeds that are asked for."""
    return range(arguments.start, arguments.start + arguments.seeds)


def run_many(
    outcome: Callable[..., ResultT | str],
    arguments: argparse.Namespace,
    sums: Callable[[Sequence[ResultT]], str],
) -> int:
    """Run them, side by side; the exit code. `outcome(seed, shrinks=)`: a text tells of a failure;
    `sums`: what else to print of those that hold.
    """
    begin, cpu_begin = time.perf_counter(), _cpu_s()
    results: list[ResultT] = []
    failures = 0
    run = partial(outcome, shrinks=not arguments.no_shrink)
    with closing(in_order(run, seeds_of(arguments), arguments.jobs)) as outcomes:
        for found in shown(outcomes, arguments.seeds, "worlds"):
            if not isinstance(found, str):
                results.append(found)
                continue
            failures += 1
            sys.stdout.write(f"{found}\n")
            sys.stdout.flush()
            if not arguments.keep_going:
                break
    elapsed_s = time.perf_counter() - begin
    cpu_s = _cpu_s() - cpu_begin
    simulated_s = sum(result.simulated_s for result in results)
    sys.stdout.write(
        f"{len(results)} worlds hold, {failures} do not; {simulated_s:,.0f} simulated s in "
        f"{elapsed_s:.1f} s ({simulated_s / elapsed_s:.0f} times real time) and {cpu_s:.1f} s of "
        f"processors' time ({simulated_s / cpu_s:.0f} times), {sums(results)}\n"
    )
    return 1 if failures else 0


def _cpu_s() -> float:
    """What this process and the children that have ended have used; on a busy machine that says
    more than what went by.
    """
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
