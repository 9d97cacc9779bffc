"""Draws what the cluster did in the demo: throughput and lag over time, with the leader's failures
marked, and the order that the records of the publishers were merged in.

Invariant: times and counts are what the processes reported; the order is read from a merged log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from samelog.examples.flights.picture import (
    FAINT,
    INK,
    NOTHING,
    ORIGIN_COLOURS,
    ORIGINS,
    STYLE,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEP_S = 0.5
BESIDE_TITLE: Mapping[str, Any] = {
    "frameon": False,
    "ncols": 3,
    "bbox_to_anchor": (1, 1),
    "borderaxespad": 0.15,
}
"""Of legends: nothing that is drawn is behind them."""
ROWS, ROW_RECORDS = 8, 1_500
"""Of the merge order: what is shown of it is around the first failure."""
APPENDED, EARLY_COLOUR, LATE_COLOUR = INK, "#0072B2", "#D55E00"


@dataclass(frozen=True, slots=True)
class Moment:
    """Records that were appended, and handed to each subscriber, up to a time."""

    at: float
    appended: int
    early: int
    late: int | None
    """None: it has not begun."""


@dataclass(frozen=True, slots=True)
class Failure:
    """From when to when nobody led, and what had happened."""

    at: float
    seconds: float
    text: str


@dataclass(slots=True)
class Course:
    """What happened, and when. `origins`: of the merged log's records, in its order."""

    samples: list[Moment] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    origins: Sequence[str] = ()

    @property
    def began(self) -> float:
        """When the first record was appended, as near as that is known."""
        return next((each.at for each in self.samples if each.appended), self.samples[0].at)

    def around_failure(self) -> range:
        """The offsets whose order is shown."""
        size, total = ROWS * ROW_RECORDS, len(self.origins)
        failed = self.failures[0].at if self.failures else self.began
        middle = next((each.early for each in self.samples if each.at >= failed), 0)
        first = max(0, min(middle - size // 2, total - size))
        return range(first, min(total, first + size))


def stretches(origins: Sequence[str], offsets: range) -> Iterator[tuple[int, int, str]]:
    """(first offset, how many, origin) of records that follow each other from one origin."""
    first = offsets.start
    for origin, found in groupby(origins[offsets.start : offsets.stop]):
        count = sum(1 for _ in found)
        yield first, count, origin
        first += count


def draw(course: Course, path: str) -> None:
    """Write the picture. Raises OSError."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure: Any = Figure(figsize=(11, 9.5), layout="constrained")
        axes = figure.subplot_mosaic([["rate"], ["lag"], ["order"]], height_ratios=[3, 3, 2])
        figure.get_layout_engine().set(h_pad=0.12)
        figure.suptitle(
            f"What the cluster did with {len(course.origins):,} flights\n"
            "published at an even pace, so this is no measure of speed",
            x=0.01,
            ha="left",
            fontsize=13,
        )
        _rates(axes["rate"], course)
        _lag(axes["lag"], course)
        _order(axes["order"], course)
        figure.savefig(path, dpi=150, format="png")


def _rates(axes: Axes, course: Course) -> None:
    """Lines: records per second that were appended, and handed to the first subscriber."""
    import numpy as np

    at = np.array([each.at - course.began for each in course.samples])
    edges = np.arange(0, at[-1] + STEP_S, STEP_S)
    for name, label, colour in (
        ("appended", "appended by the publishers", APPENDED),
        ("early", "merged, and handed to the first subscriber", EARLY_COLOUR),
    ):
        counts = np.interp(edges, at, [getattr(each, name) for each in course.samples])
        drawn = np.diff(counts) / STEP_S
        axes.stairs(drawn, edges, color=colour, alpha=0.08, fill=True)
        axes.stairs(drawn, edges, color=colour, linewidth=1.6, label=label)
    axes.set_title("Records per second")
    _finish(axes, course)


def _lag(axes: Axes, course: Course) -> None:
    """Lines: how many appended records each subscriber has not been handed."""
    began = course.began
    early = [(each.at - began, each.appended - each.early) for each in course.samples]
    late = [
        (each.at - began, each.appended - each.late)
        for each in course.samples
        if each.late is not None
    ]
    for points, label, colour in (
        (early, "the subscriber from the start", EARLY_COLOUR),
        (late, "the one that joined late", LATE_COLOUR),
    ):
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.6, label=label)
    axes.set_title("Lag: records that were appended, and not yet handed to a subscriber")
    axes.set_xlabel("seconds since the first record")
    _finish(axes, course)


def _finish(axes: Axes, course: Course) -> None:
    """The failures, and what both axes over time have."""
    for failure in course.failures:
        at = failure.at - course.began
        axes.axvspan(at, at + failure.seconds, color=NOTHING, zorder=0)
        axes.axvline(at, color=FAINT, linewidth=0.9, linestyle="--")
        axes.annotate(
            failure.text,
            (at, 1),
            (3, -3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            color=INK,
            fontsize=8,
        )
    axes.set_xlim(0, course.samples[-1].at - course.began)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.15)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(axis="y", color=NOTHING)
    axes.set_axisbelow(True)
    axes.legend(loc="lower right", fontsize=8, **BESIDE_TITLE)
    axes.spines[["top", "right"]].set_visible(False)


def _order(axes: Axes, course: Course) -> None:
    """Strips: the records of the merged log in its order, coloured by their origin."""
    from matplotlib.patches import Patch

    offsets = course.around_failure()
    names = sorted(set(course.origins))
    colours = dict(zip(names, ORIGIN_COLOURS, strict=False))
    for row, start in enumerate(range(offsets.start, offsets.stop, ROW_RECORDS)):
        shown = range(start, min(start + ROW_RECORDS, offsets.stop))
        found = list(stretches(course.origins, shown))
        axes.broken_barh(
            [(first - start, count) for first, count, _ in found],
            (row - 0.4, 0.8),
            facecolors=[colours[origin] for *_, origin in found],
        )
    starts = range(offsets.start, offsets.stop, ROW_RECORDS)
    axes.set_yticks(range(len(starts)), [f"{start:,}" for start in starts])
    axes.invert_yaxis()
    axes.set_xlim(0, ROW_RECORDS)
    axes.set_title("Merge order around the first failure: the same on every node and subscriber")
    axes.set_xlabel(f"{ROW_RECORDS:,} records in each row, which begins at the offset to its left")
    labels = [
        Patch(color=colour, label=ORIGINS.get(name, name)) for name, colour in colours.items()
    ]
    axes.legend(handles=labels, loc="lower right", fontsize=8, **BESIDE_TITLE)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
