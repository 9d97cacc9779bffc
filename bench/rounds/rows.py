"""Rows of a comparison: medians and ranges of rounds, beside a peer's, against a target. Pure.

Invariant: a row is as measured, also when it misses its target; without figures it is neither met
nor missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.meter import WAITED
from bench.rounds.lines import Line

SLOW_DISK_MS = 1.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one system."""

    system: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A bound, either way, of a row's ratio or of our own figure. `slow_disk`: the bound that
    counts where `fdatasync` takes a millisecond or more.
    """

    at_least: float | None = None
    at_most: float | None = None
    slow_disk: float | None = None
    of_ours: bool = False

    def bound(self, fdatasync_ms: float) -> float:
        """What counts with such a disk."""
        if self.slow_disk is not None and fdatasync_ms >= SLOW_DISK_MS:
            return self.slow_disk
        found = self.at_most if self.at_least is None else self.at_least
        if found is None:
            raise ValueError("a target without a bound")
        return found

    def text(self, fdatasync_ms: float) -> str:
        """For people."""
        sign, unit = "≤" if self.at_least is None else "≥", "" if self.of_ours else " ×"
        return f"{sign} {self.bound(fdatasync_ms):,g}{unit}"

    def is_met(self, ours: float, ratio: float | None, fdatasync_ms: float) -> bool | None:
        """None: there is nothing to compare with."""
        value = ours if self.of_ours else ratio
        if value is None:
            return None
        bound = self.bound(fdatasync_ms)
        return value <= bound if self.at_least is None else value >= bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is compared. `worst`: the largest figure counts, not the median."""

    row: str
    what: str
    unit: str
    measure: str
    ours: Figure
    peer: Figure | None = None
    target: Target | None = None
    worst: bool = False


def values(figure: Figure | None, lines: Sequence[Line]) -> list[float]:
    """All that was measured."""
    if figure is None:
        return []
    found = [line.figures.get(figure.system, {}).get(figure.name) for line in lines]
    return [
        each
        for value in found
        if value is not None
        for each in (value if isinstance(value, list) else [value])
    ]


def spread(figures: Sequence[float]) -> list[float] | None:
    """Smallest and largest."""
    return [min(figures), max(figures)] if figures else None


def disk_of(lines: Sequence[Line]) -> float:
    """The median of the probes' own medians."""
    return median([line.fdatasync_ms["p50"] for line in lines]) if lines else 0.0


def waited(figure: Figure | None, lines: Sequence[Line]) -> float | None:
    """Threads of a system's nodes that waited for a processor, on average; None if not measured."""
    found = [] if figure is None else values(Figure(figure.system, WAITED), lines)
    return median(found) if found else None


def result(row: Row, lines: Sequence[Line]) -> dict[str, Any]:
    """A row of the result; `lines`: the rounds of its measure that count."""
    take = max if row.worst else median
    ours, peers = values(row.ours, lines), values(row.peer, lines)
    own, peer = (take(each) if each else None for each in (ours, peers))
    ratio = own / peer if own is not None and peer else None
    disk_ms = disk_of(lines)
    target = row.target
    return {
        "row": row.row,
        "what": row.what,
        "unit": row.unit,
        "ours": own,
        "peer": peer,
        "ratio": ratio,
        "target": target.text(disk_ms) if target else None,
        "met": target.is_met(own, ratio, disk_ms) if target and own is not None else None,
        "ours_is": f"{row.ours.system}: {row.ours.name}",
        "peer_is": f"{row.peer.system}: {row.peer.name}" if row.peer else None,
        "ours_range": spread(ours),
        "peer_range": spread(peers),
        "ours_waited": waited(row.ours, lines),
        "peer_waited": waited(row.peer, lines),
        "rounds": sum(bool(values(row.ours, [line])) for line in lines),
    }


def results(rows: Sequence[Row], counting: Mapping[str, Sequence[Line]]) -> list[dict[str, Any]]:
    """All rows; `counting`: the rounds of each measure that count."""
    return [result(row, counting.get(row.measure, ())) for row in rows]
