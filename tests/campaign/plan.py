"""Which piece of the campaign is next: pure.

All rows advance side by side: the one with the smallest share of what it wants is next, and among
equals the quickest, so that an hour of the machine gives something for every row.

Invariant: only results of the present code count for a row, and no seed is used twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.campaign.results import BROKEN, SKIPPED, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Something to publish, and how much of it is wanted."""

    kind: str
    name: str
    wanted: int
    batch: int
    """How much of it one piece gives."""
    takes_s: float
    """One piece, about."""
    digest: str = ""
    """Of the code that it depends on, as it is now."""
    first_seed: int = 1
    why_not: str | None = None
    """Why it cannot run on this machine."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One run, or one batch of seeds."""

    row: Row
    seed: int
    count: int


def of_row(row: Row, results: Sequence[Result]) -> list[Result]:
    """All that was ever found out for a row."""
    return [each for each in results if (each.kind, each.row) == (row.kind, row.name)]


def of_present_code(row: Row, results: Sequence[Result]) -> list[Result]:
    """What counts for a row: its runs since the code changed."""
    found = of_row(row, results)
    return [each for each in found if each.digest == row.digest and each.verdict != SKIPPED]


def done(row: Row, results: Sequence[Result]) -> int:
    """How much of a row is there."""
    return sum(each.count for each in of_present_code(row, results))


def is_complete(row: Row, results: Sequence[Result]) -> bool:
    """Whether nothing is left to run."""
    return row.why_not is not None or done(row, results) >= row.wanted


def is_broken(row: Row, results: Sequence[Result]) -> bool:
    """Whether a run of the present code failed."""
    return any(each.verdict == BROKEN for each in of_present_code(row, results))


def expected_s(row: Row, results: Sequence[Result]) -> float:
    """How long a piece takes: as long as the last one."""
    ran = [each.took_s for each in of_row(row, results) if each.verdict != SKIPPED]
    return float(ran[-1]) if ran else row.takes_s


def left_s(row: Row, results: Sequence[Result]) -> float:
    """How long all that is missing takes."""
    if is_complete(row, results):
        return 0.0
    there = of_present_code(row, results)
    per_piece = there[-1].count if there else row.batch
    return (row.wanted - done(row, results)) / per_piece * expected_s(row, results)


def next_piece(rows: Sequence[Row], results: Sequence[Result], left_s: float) -> Piece | None:
    """What to run now; None if nothing is left that ends in time."""
    missing = [row for row in rows if not is_complete(row, results)]
    fitting = [row for row in missing if expected_s(row, results) <= left_s]
    if not fitting:
        return None
    row = min(fitting, key=lambda row: (done(row, results) / row.wanted, row.takes_s, row.name))
    used = [each.seed + each.seeds for each in of_row(row, results)]
    left = row.wanted - done(row, results)
    return Piece(row, max([row.first_seed, *used]), min(row.batch, left))


def newly_skipped(rows: Sequence[Row], results: Sequence[Result]) -> list[Row]:
    """Rows that cannot run here, of which the results do not say so yet."""
    found = []
    for row in rows:
        known = of_row(row, results)
        said = known and known[-1].verdict == SKIPPED and row.why_not in known[-1].remarks
        if row.why_not is not None and not said:
            found.append(row)
    return found
