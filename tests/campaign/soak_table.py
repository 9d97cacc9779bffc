"""What the samples of the soak's parts say of memory, and their table: pure.

Slopes are those of lines of least squares. Samples of a process's first two minutes are left out,
and those of the soak's first five, in which the log grows to what the policy keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import fmean
from typing import NamedTuple

from tests.campaign.results import Result
from tests.campaign.tables import NOTHING, line, newest, paragraph, ran, total

SETTLED_S = 120
FULL_MINUTES = 5
MINUTES_PER_HOUR = 60
HEAD = (
    "| minutes | commit | records a second | acknowledged | lost | doubled | restarts | pause ms | "
    "memory MB | in a life MB/h | descriptors | disk MB | archived | verdict |\n"
    "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n"
)


class Sample(NamedTuple):
    """One look at one node: as soak.py writes them."""

    minute: int
    """Of the soak, over all parts."""
    node: int
    age_s: int
    memory_mb: float
    descriptors: int


def samples(parts: Iterable[Result]) -> list[Sample]:
    """Those of processes that have settled, in a cluster that has."""
    found = [Sample(*each) for part in parts for each in part.figures.get("samples", ())]
    return [each for each in found if each.age_s >= SETTLED_S and each.minute > FULL_MINUTES]


def slope_mb_per_h(groups: Iterable[Sequence[Sample]]) -> float:
    """How memory changes within the groups, all of which have the same slope."""
    above = below = 0.0
    for group in groups:
        minute, memory = (fmean(each[part] for each in group) for part in (0, 3))
        above += sum((each.minute - minute) * (each.memory_mb - memory) for each in group)
        below += sum((each.minute - minute) ** 2 for each in group)
    return MINUTES_PER_HOUR * above / below if below else 0.0


def lives(found: Iterable[Sample]) -> list[list[Sample]]:
    """The samples of each process."""
    groups: list[list[Sample]] = []
    ordered = sorted(found, key=lambda each: (each.node, each.minute))
    for _, of_node in groupby(ordered, key=lambda each: each.node):
        groups.append([])
        for each in of_node:
            if groups[-1] and each.age_s < groups[-1][-1].age_s:
                groups.append([])
            groups[-1].append(each)
    return groups


def same_age(found: Iterable[Sample]) -> list[list[Sample]]:
    """The samples of processes of equal age, in minutes: what differs is how much is behind the
    cluster.
    """
    ordered = sorted(found, key=lambda each: round(each.age_s / 60))
    return [list(group) for _, group in groupby(ordered, key=lambda each: round(each.age_s / 60))]


def soak(results: Sequence[Result]) -> str:
    """Every part of the newest code, and the slopes over all of them."""
    runs = ran(results, "soak").get("soak", [])
    if not runs:
        return NOTHING
    parts = newest(runs)
    found = samples(parts)
    minutes = sum(each.count for each in parts)
    in_a_life = slope_mb_per_h(lives(found))
    over_all = slope_mb_per_h(same_age(found))
    return (
        HEAD
        + "".join(
            _line(part, sum(each.count for each in parts[:n])) for n, part in enumerate(parts)
        )
        + paragraph(
            f"In all: {minutes:,} minutes, {total(parts, 'acknowledged'):,} acknowledged records, "
            f"{total(parts, 'lost'):,} lost, {total(parts, 'doubled'):,} doubled. In the life of a "
            f"process, memory changes by {in_a_life:.1f} MB/h; from process to process of the same "
            f"age, by {over_all:.1f} MB/h. On earlier code: "
            f"{sum(each.count for each in runs) - minutes:,} minutes."
        )
    )


def _line(part: Result, before: int) -> str:
    figures = part.figures
    looked = [Sample(*each) for each in figures.get("samples", ())]
    rate = figures.get("acknowledged", 0) / part.count / 60
    names = ("acknowledged", "lost", "doubled", "restarts", "pause_ms")
    return line(
        (
            f"{before} to {before + part.count}",
            f"`{part.commit}`",
            round(rate),
            *(figures.get(name, 0) for name in names),
            max((each.memory_mb for each in looked), default=0.0),
            f"{slope_mb_per_h(lives(samples([part]))):.1f}",
            max((each.descriptors for each in looked), default=0),
            figures.get("disk_mb", 0),
            figures.get("archived", 0),
            part.verdict,
        )
    )
