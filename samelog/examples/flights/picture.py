"""Draws the report of the pipeline `flights` as a PNG.

Colours are told apart by people who see few of them, too (Okabe and Ito's for lines and bars; blue
to red around zero); what is rare is left blank rather than shown as if it were certain.

What it shows is counted from the rows of the pipeline's lake.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from samelog.spark.pipelines import PipelineError

if TYPE_CHECKING:
    from datetime import datetime

    from matplotlib.axes import Axes

KeyT = TypeVar("KeyT", bound=Hashable)
COLUMNS = (
    "week",
    "carrier",
    "origin",
    "weather",
    "flights",
    "cancelled",
    "arrived",
    "late",
    "mean_arrival_delay",
)
"""Of the rows, those that count here."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Some flights: how many arrived, their mean arrival delay (minutes), how many were late."""

    arrived: int
    mean: float
    late: int

    @property
    def late_share(self) -> float:
        """Of those that arrived."""
        return self.late / self.arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightsReport:
    """All flights, and those of each week and origin, carrier and weather, origin and weather;
    nothing where no flight arrived. `first` and `last`: when the weeks begin.
    """

    flights: int
    cancelled: int
    first: datetime
    last: datetime
    by_week: Mapping[tuple[str, datetime], Delays]
    by_carrier: Mapping[tuple[str, str], Delays]
    by_origin: Mapping[tuple[str, str], Delays]


def report(rows: Sequence[Any]) -> FlightsReport | None:
    """From rows with COLUMNS as attributes; None: there are none."""
    if not rows:
        return None
    return FlightsReport(
        flights=sum(row.flights for row in rows),
        cancelled=sum(row.cancelled for row in rows),
        first=min(row.week for row in rows),
        last=max(row.week for row in rows),
        by_week=_grouped([((row.origin, row.week), row) for row in rows]),
        by_carrier=_grouped([((row.carrier, row.weather), row) for row in rows]),
        by_origin=_grouped([((row.origin, row.weather), row) for row in rows]),
    )


def _grouped(keyed: Sequence[tuple[KeyT, Any]]) -> dict[KeyT, Delays]:
    groups: dict[KeyT, list[Any]] = defaultdict(list)
    for key, row in keyed:
        if row.arrived:
            groups[key].append(row)
    return {key: _together(rows) for key, rows in groups.items()}


def _together(rows: Sequence[Any]) -> Delays:
    arrived = sum(row.arrived for row in rows)
    minutes = sum(row.mean_arrival_delay * row.arrived for row in rows)
    return Delays(arrived, minutes / arrived, sum(row.late for row in rows))


ORIGINS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}
ORIGIN_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
CARRIERS = {
    "9E": "Endeavor",
    "AA": "American",
    "AS": "Alaska",
    "B6": "JetBlue",
    "DL": "Delta",
    "EV": "ExpressJet",
    "F9": "Frontier",
    "FL": "AirTran",
    "HA": "Hawaiian",
    "MQ": "Envoy",
    "OO": "SkyWest",
    "UA": "United",
    "US": "US Airways",
    "VX": "Virgin America",
    "WN": "Southwest",
    "YV": "Mesa",
}
INK, FAINT, NOTHING = "#222222", "#888888", "#F2F2F2"
CERTAIN = 30
"""Flights that a mean is taken of, at least."""
WORST, BEST = 60.0, -20.0
"""Where the colours of mean delays end (minutes)."""
STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "xtick.color": INK,
    "ytick.color": INK,
}


def check_installed() -> None:
    """Raise PipelineError where there is nothing to draw with."""
    if find_spec("matplotlib") is None:
        raise PipelineError(
            "a picture needs matplotlib, not installed here: install samelog with the extra 'plot'"
        )


def draw(report: FlightsReport, path: str) -> None:
    """Write the picture. Raises PipelineError, OSError."""
    check_installed()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure: Any = Figure(figsize=(11, 9.5), layout="constrained")
        axes = figure.subplot_mosaic([["weeks", "weeks"], ["cells", "bars"]], height_ratios=[2, 3])
        figure.get_layout_engine().set(h_pad=0.12, w_pad=0.1)
        _title(figure, report)
        weather = _ranked(report.by_origin)
        _weeks(axes["weeks"], report)
        _cells(axes["cells"], report, weather)
        _bars(axes["bars"], report, weather)
        figure.savefig(path, dpi=150, format="png")


def _title(figure: Any, report: FlightsReport) -> None:
    when = f"weeks of {report.first:%-d %B %Y} to {report.last:%-d %B %Y}"
    share = report.cancelled / report.flights
    figure.suptitle(
        f"How late flights from New York arrived\n{report.flights:,} flights, {when}; "
        f"{share:.1%} cancelled, which are not counted below",
        x=0.01,
        ha="left",
        fontsize=13,
    )


def _ranked(found: Mapping[tuple[str, str], Delays]) -> list[str]:
    """The second names, the latest flights first; what is unknown comes last."""
    totals: dict[str, list[Delays]] = {}
    for (_, name), delays in found.items():
        totals.setdefault(name, []).append(delays)
    return sorted(totals, key=lambda name: (name == "unknown", -_mean(totals[name])))


def _mean(delays: Sequence[Delays]) -> float:
    return sum(each.mean * each.arrived for each in delays) / sum(each.arrived for each in delays)


def _origins(report: FlightsReport) -> dict[str, str]:
    names = sorted({origin for origin, _ in report.by_origin})
    return dict(zip(names, ORIGIN_COLOURS, strict=False))


def _weeks(axes: Axes, report: FlightsReport) -> None:
    """Lines: mean arrival delay of each week, an origin each."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    axes.set_title("Mean arrival delay of each week, minutes")
    axes.axhline(0, color=FAINT, linewidth=0.8)
    for origin, colour in _origins(report).items():
        weeks = sorted(week for found, week in report.by_week if found == origin)
        means = [report.by_week[origin, week].mean for week in weeks]
        label = f"{ORIGINS.get(origin, origin)} ({origin})"
        axes.plot(_days(weeks), means, color=colour, linewidth=1.8, label=label, marker=".")
    locator = AutoDateLocator(maxticks=14)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.grid(axis="y", color=NOTHING)
    axes.margins(x=0.01)
    axes.legend(frameon=False, ncols=3, loc="upper right")
    _bare(axes)


def _days(weeks: Sequence[datetime]) -> Any:
    from matplotlib.dates import date2num

    return date2num(weeks)


def _cells(axes: Axes, report: FlightsReport, weather: Sequence[str]) -> None:
    """A cell for each carrier and weather, coloured by its mean arrival delay."""
    from matplotlib.colors import TwoSlopeNorm

    carriers = _ranked({(two, one): found for (one, two), found in report.by_carrier.items()})
    rows = [[_certain(report, carrier, name) for name in weather] for carrier in carriers]
    norm = TwoSlopeNorm(0, BEST, WORST)
    axes.set_facecolor(NOTHING)
    axes.imshow(rows, cmap="RdBu_r", norm=norm, aspect="auto")
    for row, means in enumerate(rows):
        for column, mean in enumerate(means):
            strong = mean > WORST * 0.6
            text = "·" if mean != mean else f"{mean:.0f}"  # noqa: PLR0124 - NaN
            axes.text(column, row, text, ha="center", va="center", color="w" if strong else INK)
    axes.set_title("Mean arrival delay, minutes")
    axes.set_xticks(range(len(weather)), weather)
    axes.set_yticks(
        range(len(carriers)), [f"{CARRIERS.get(each, '')} {each}".strip() for each in carriers]
    )
    axes.set_xlabel(f"weather at the origin in the hour of departure (·: fewer than {CERTAIN})")
    axes.tick_params(length=0)
    _bare(axes, "left", "bottom")


def _certain(report: FlightsReport, carrier: str, weather: str) -> float:
    found = report.by_carrier.get((carrier, weather))
    return float("nan") if found is None or found.arrived < CERTAIN else found.mean


def _bars(axes: Axes, report: FlightsReport, weather: Sequence[str]) -> None:
    """The share of late flights: a group of bars for each weather, a bar for each origin."""
    origins = _origins(report)
    thick = 0.8 / len(origins)
    for number, (origin, colour) in enumerate(origins.items()):
        for place, name in enumerate(weather):
            found = report.by_origin.get((origin, name))
            if found is None or found.arrived < CERTAIN:
                continue
            share = 100 * found.late_share
            at = place + (number - (len(origins) - 1) / 2) * thick
            axes.barh(at, share, thick * 0.9, color=colour)
            axes.text(share + 0.5, at, f"{share:.0f} %", va="center", color=INK, fontsize=8)
    axes.set_title("Arrived 15 or more minutes late, per cent")
    axes.set_yticks(range(len(weather)), weather)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])
    axes.set_xlabel("  ".join(f"{name}: {ORIGINS.get(name, name)}" for name in origins))
    axes.legend(
        handles=[_patch(colour, origin) for origin, colour in origins.items()],
        frameon=False,
        loc="lower right",
    )
    _bare(axes, "bottom")


def _patch(colour: str, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=colour, label=label)


def _bare(axes: Axes, *more: str) -> None:
    for side in ("top", "right", *more):
        axes.spines[side].set_visible(False)
