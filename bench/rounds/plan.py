"""Which round is next: pure.

A run goes on where the one before was cut, and every measure gets its first round before one gets
its second. Invariant: only rounds of the present code, of the same settings and of such a machine
count. Where there are none yet, the page shows the newest rounds of older code, with their commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.rounds.lines import Line


@dataclass(frozen=True, slots=True)
class Wanted:
    """A measure as it is now."""

    name: str
    code: str
    settings: Mapping[str, Any]
    machine: str


def counting(wanted: Wanted, lines: Sequence[Line]) -> list[Line]:
    """The rounds that count for a measure."""
    return [
        line
        for line in lines
        if (line.measure, line.code) == (wanted.name, wanted.code)
        and (line.settings, line.machine) == (wanted.settings, wanted.machine)
    ]


def shown(wanted: Wanted, lines: Sequence[Line]) -> list[Line]:
    """The rounds that count, or, if there are none, the newest ones of older code."""
    alike = [
        line
        for line in lines
        if (line.measure, line.settings, line.machine)
        == (wanted.name, wanted.settings, wanted.machine)
    ]
    newest = alike[-1].code if alike else ""
    return counting(wanted, lines) or [line for line in alike if line.code == newest]


def following(
    wanted: Sequence[Wanted],
    lines: Sequence[Line],
    *,
    rounds: int,
    failed: Collection[str] = (),
) -> Wanted | None:
    """What to run now; None if nothing is missing but what failed in this run."""
    missing = [
        (len(counting(each, lines)), number)
        for number, each in enumerate(wanted)
        if each.name not in failed and len(counting(each, lines)) < rounds
    ]
    return wanted[min(missing)[1]] if missing else None
