"""Gathers samples and writes them as Prometheus reads them.

Invariant: gathering leaves the event loop to others every millisecond; a metric has at most
SERIES_MAX series, however many topics, sessions or groups there are.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)

from samelog.http.metrics.table import Metric, MetricKind
from samelog.runtime.counters import Histogram

SERIES_MAX = 500
OTHER = "other"
"""Stands for what is beyond them, summed up."""
SLICE_S = 0.001

Labels = tuple[str, ...]
Sample = tuple[str, Labels, float | Histogram]
"""Name, label values, value."""
Gather = Callable[[], Iterator[Sample]]


class Metrics:
    """One process's part of /metrics, in a registry of its own."""

    def __init__(self, metrics: Mapping[str, Metric], gathers: Iterable[Gather]) -> None:
        self._metrics = metrics
        self._gathers = tuple(gathers)
        self._families: list[Family] = []
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        self._one_at_a_time = asyncio.Lock()

    def collect(self) -> Iterable[Family]:
        """The families gathered last; called by the registry."""
        return self._families

    def describe(self) -> Iterable[Family]:
        """Nothing: the table has all names, so nothing is gathered to find them."""
        return ()

    async def text(self) -> str:
        """All metrics as they are now, in the Prometheus text format."""
        async with self._one_at_a_time:
            self._families = await self._gather()
            return await asyncio.to_thread(lambda: generate_latest(self._registry).decode())

    async def _gather(self) -> list[Family]:
        series: defaultdict[str, dict[Labels, float | Histogram]] = defaultdict(dict)
        until = time.monotonic() + SLICE_S
        for gather in self._gathers:
            for name, labels, value in gather():
                self._check(name, labels)
                series[name][labels] = value
                if time.monotonic() > until:
                    await asyncio.sleep(0)
                    until = time.monotonic() + SLICE_S
        return [_family(metric, series[metric.name]) for metric in self._metrics.values()]

    def _check(self, name: str, labels: Labels) -> None:
        """A defect, but of monitoring alone: it fails the request, and nothing else."""
        metric = self._metrics.get(name)
        if metric is None or len(labels) != len(metric.labels):
            raise LookupError(f"metric {name}{labels} is not in the table")


def _family(metric: Metric, series: Mapping[Labels, float | Histogram]) -> Family:
    if metric.kind is MetricKind.HISTOGRAM:
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in series.items():
            if isinstance(value, Histogram):
                family.add_metric(labels, _buckets(value), value.sum)
        return family
    kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    found = kind(metric.name, metric.help, labels=metric.labels)
    for labels, number in bounded(metric, series):
        found.add_metric(labels, number)
    return found


def bounded(
    metric: Metric, series: Mapping[Labels, float | Histogram]
) -> Iterable[tuple[Labels, float]]:
    """At most SERIES_MAX: of gauges the highest, of counters the first, so that none falls."""
    rows = [(labels, value) for labels, value in series.items() if isinstance(value, int | float)]
    if len(rows) <= SERIES_MAX:
        return rows
    if metric.kind is MetricKind.GAUGE:
        rows.sort(key=lambda row: row[1], reverse=True)
    kept, rest = rows[: SERIES_MAX - 1], rows[SERIES_MAX - 1 :]
    return [*kept, ((OTHER,) * len(metric.labels), sum(value for _, value in rest))]


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    buckets, total = [], 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), float(total)))
    return buckets
