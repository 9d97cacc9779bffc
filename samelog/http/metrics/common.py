"""What nodes and sidecars have in common: build, certificates, disk, Kafka listeners.

Samples are gathered, and written as Prometheus reads them.

Invariant: a certificate is read again only when its file has changed.
Also: gathering leaves the event loop to others every millisecond; a metric has at most
SERIES_MAX series, however many topics, sessions or groups there are.
"""

from __future__ import annotations

import asyncio
import os
import shutil
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

import samelog
from samelog.config.tables.shared import TlsFiles
from samelog.http.metrics.table import Metric, MetricKind
from samelog.runtime.counters import Histogram, ListenerTally
from samelog.runtime.errors import TlsFault
from samelog.runtime.network.expiry import OWN, certificate_paths, earliest_expiry
from samelog.runtime.network.tls import ReloadingContext, open_context, signatures

SERIES_MAX = 500
OTHER = "other"
"""Stands for what is beyond them, summed up."""
SLICE_S = 0.001

Labels = tuple[str, ...]
Sample = tuple[str, Labels, float | Histogram]
"""Name, label values, value."""
Gather = Callable[[], Iterator[Sample | None]]
"""None stands for a step without a sample."""


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
            for sample in gather():
                if sample is not None:
                    name, labels, value = sample
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


class Certificates:
    """When certificates expire, and whether their files can be used."""

    def __init__(self, files: Mapping[str, TlsFiles], identity: str | None = None) -> None:
        """`identity`: what the process's own certificate has to be for."""
        self._files = files
        self._identity = identity
        self._known: dict[str, tuple[tuple[int, int], float]] = {}
        """File -> (inode and time of change), when it expires."""
        self._tried: dict[str, tuple[object, bool]] = {}
        """Name -> signatures, whether they can be used."""

    def samples(self) -> Iterator[Sample]:
        """Expiry and usability; a certificate that cannot be read has no expiry."""
        for name, expiry in self.expiries().items():
            yield "samelog_tls_certificate_expiry_timestamp_seconds", (name,), expiry
        for name in self._files:
            yield "samelog_tls_files_unusable", (name,), not self._is_usable(name)

    def expiries(self) -> dict[str, float]:
        """Name -> when it expires, in seconds of the epoch, of those that can be read."""
        paths = certificate_paths(self._files)
        known = {name: self._expiry(path) for name, path in paths.items()}
        return {name: expiry for name, expiry in known.items() if expiry is not None}

    def _is_usable(self, name: str) -> bool:
        files = self._files[name]
        found, (seen, is_usable) = signatures(files), self._tried.get(name, (None, False))
        if seen != found or (name == OWN and not is_usable):  # the process tries those again, too
            self._tried[name] = found, self._try(name, files)
        return self._tried[name][1]

    def _try(self, name: str, files: TlsFiles) -> bool:
        """Whether the files can be used; a listener needs no authority."""
        try:
            if name == OWN:
                ReloadingContext(files, own=self._identity)
            else:
                open_context(files, ask_certificate=False)
        except TlsFault:
            return False
        return True

    def _expiry(self, path: str) -> float | None:
        try:
            status = os.stat(path)
            seen = status.st_ino, status.st_mtime_ns
            known = self._known.get(path)
            if known is None or known[0] != seen:
                with open(path, "rb") as file:
                    known = seen, earliest_expiry(file.read())
                self._known[path] = known
        except (OSError, ValueError):
            return None
        return known[1]


def build() -> Iterator[Sample]:
    """The version of samelog."""
    yield "samelog_build_info", (samelog.__version__,), 1


def disk(directory: str, name: str = "disk") -> Iterator[Sample]:
    """Space of the file system that has the directory."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return
    yield f"samelog_{name}_used_bytes", (), usage.used
    yield f"samelog_{name}_free_bytes", (), usage.free


def kafka(tallies: Mapping[str, ListenerTally]) -> Iterator[Sample]:
    """Counters of the Kafka listeners."""
    for name, tally in tallies.items():
        yield "samelog_kafka_connections", (name,), tally.connections
        yield "samelog_kafka_refused_connections_total", (name,), tally.refused
        yield "samelog_kafka_requests_total", (name,), tally.requests
        yield "samelog_kafka_received_bytes_total", (name,), tally.in_bytes
        yield "samelog_kafka_sent_bytes_total", (name,), tally.out_bytes
        yield "samelog_kafka_held_bytes", (name,), tally.held()


def config_refused(problem: Callable[[], str]) -> Iterator[Sample]:
    """Whether the newest configuration is refused. `problem`: why; empty if it is not."""
    yield "samelog_config_refused", (), bool(problem())


def ready(not_ready: Callable[[], str]) -> Iterator[Sample]:
    """Whether /readyz answers that the process can serve."""
    yield "samelog_ready", (), not not_ready()


def loop_delay(histogram: Histogram) -> Iterator[Sample]:
    """Delays of the event loop's timers."""
    yield "samelog_event_loop_delay_seconds", (), histogram
