"""How metrics are gathered and written, without a node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from samelog.http.metrics.common import (
    OTHER,
    SERIES_MAX,
    Certificates,
    Labels,
    Metrics,
    Sample,
    bounded,
)
from samelog.http.metrics.table import (
    COMMON,
    NODE,
    PUBLISHER,
    SIDECAR,
    SUBSCRIBER,
    Metric,
    MetricKind,
    by_name,
)
from samelog.runtime.clock import ManualClock
from samelog.runtime.counters import WINDOW_S, Histogram, Meter
from samelog.runtime.network.expiry import OWN
from samelog.sequencer.measures import OLD_S, Measures
from tests.runtime.pki import NOW, Authority

GAUGE = Metric("g", MetricKind.GAUGE, "A gauge.", ("a",))
COUNTER = Metric("c_total", MetricKind.COUNTER, "A counter.", ("a",))
TIMES = Metric("t_seconds", MetricKind.HISTOGRAM, "Times.")


def text_of(*samples: Sample) -> str:
    async def main() -> str:
        def gather() -> Iterator[Sample]:
            return iter(samples)

        return await Metrics(by_name((GAUGE, COUNTER, TIMES)), [gather]).text()

    return asyncio.run(main())


def test_samples_are_written_as_prometheus_reads_them() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    text = text_of(("g", ('x"y\n',), 1.5), ("c_total", ("b",), 3), ("t_seconds", (), histogram))
    found = {each.name: each for each in text_string_to_metric_families(text)}
    assert [(s.labels, s.value) for s in found["g"].samples] == [({"a": 'x"y\n'}, 1.5)]
    assert [(s.name, s.value) for s in found["c"].samples] == [("c_total", 3.0)]
    times = [(s.labels.get("le"), s.value) for s in found["t_seconds"].samples]
    assert times == [("0.1", 2), ("1.0", 3), ("+Inf", 4), (None, 4), (None, 7.65)]
    assert "process_open_fds" in found
    assert text_of().count("# TYPE") >= 3  # also what has no series now


@pytest.mark.parametrize("sample", [("unknown", (), 1), ("g", (), 1)])
def test_what_is_not_in_the_table_is_a_defect(sample: Sample) -> None:
    with pytest.raises(LookupError, match="is not in the table"):
        text_of(sample)


@given(st.lists(st.integers(0, 1000), max_size=3 * SERIES_MAX))
def test_series_are_bounded_and_nothing_is_lost(values: list[int]) -> None:
    series: dict[Labels, float | Histogram] = {(str(n),): value for n, value in enumerate(values)}
    for metric in (GAUGE, COUNTER):
        rows = list(bounded(metric, series))
        assert len(rows) <= SERIES_MAX
        assert sum(value for _, value in rows) == sum(values)
        if len(values) > SERIES_MAX:
            assert rows[-1][0] == (OTHER,)
            kept = [value for _, value in rows[:-1]]
            assert kept == (values if metric is COUNTER else sorted(values)[::-1])[: len(kept)]


def test_gathering_leaves_the_loop_to_others() -> None:
    async def main() -> None:
        turns = 0

        def gather() -> Iterator[Sample]:
            for number in range(200_000):
                yield "g", (str(number % 50),), number

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await Metrics(by_name((GAUGE,)), [gather]).text()
        counting.cancel()
        assert turns > 10

    asyncio.run(main())


def test_names_follow_the_conventions() -> None:
    table = (*COMMON, *NODE, *SIDECAR, *PUBLISHER, *SUBSCRIBER)
    assert len(by_name(table)) == len(table)
    for metric in table:
        assert metric.name.startswith("samelog_")
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
        assert metric.help.endswith(".")
        if metric.kind is MetricKind.HISTOGRAM:
            assert metric.name.endswith("_seconds")


def test_certificates_are_read_again_when_they_change(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.node("n")
    certificates = Certificates({OWN: files, "http": authority.node("http")})

    def samples(metric: str) -> dict[str, float]:
        found = [sample for sample in certificates.samples() if metric in sample[0]]
        return {labels[0]: float(value) for _, labels, value in found}  # type: ignore[arg-type]

    first = samples("expiry")
    assert first.keys() == {OWN, "http", "authority"}
    assert NOW.timestamp() < first[OWN] < NOW.timestamp() + 2 * 86_400
    assert samples("unusable") == {OWN: False, "http": False}
    Path(files.cert).write_text("no certificate")
    assert samples("expiry").keys() == {"http", "authority"}
    assert samples("unusable") == {OWN: True, "http": False}
    Path(files.cert).write_bytes(Path(authority.node("other").cert).read_bytes())
    assert samples("unusable")[OWN], "the key is another one's"
    authority.node("n")
    assert samples("expiry") == first
    assert samples("unusable") == {OWN: False, "http": False}


def test_old_records_and_clocks_that_differ_do_not_spoil_latencies() -> None:
    measures = Measures(ManualClock(wall_ms=10_000_000))
    for appended_ms in (9_999_980, 10_000_500, 10_000_000 - round(1000 * OLD_S), -1):
        measures.merged(1, appended_ms)
    assert measures.append_to_merged.count == 2
    assert measures.append_to_merged.sum == pytest.approx(0.02)


def test_a_meters_rate_is_that_of_the_last_window() -> None:
    meter = Meter(100.0)
    meter.add(500, 101.0)
    assert meter.rate(105.0) == 100.0
    meter.add(500, 100.0 + WINDOW_S - 0.1)
    assert meter.rate(100.0 + WINDOW_S) == 1000 / WINDOW_S
    assert meter.rate(101.0 + WINDOW_S) == 1000 / WINDOW_S
    assert meter.rate(100.0 + 3 * WINDOW_S) == 0.0
    assert meter.total == 1000
    nobody_asked = Meter(100.0)
    nobody_asked.add(500, 101.0)
    assert nobody_asked.rate(560.0) == 0.0
