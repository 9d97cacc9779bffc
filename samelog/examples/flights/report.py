"""What the picture of the pipeline `flights` shows, counted from the rows of its lake."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

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
