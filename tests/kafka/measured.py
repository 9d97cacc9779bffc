"""The table of docs/kafka.md that says, in short, what `make bench-kafka` measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.rounds.chart import number_text

RESULTS = Path(__file__).resolve().parent.parent.parent / "bench" / "results" / "kafka.json"
ROWS = {
    "a-1000": "end to end, 1 KB, MB/s",
    "a-100": "end to end, 100 B, MB/s",
    "c-1000": "processor, all processes, 1 KB, s/GB",
    "c-100": "the same, 100 B",
    "b-p50": "1,000/s: p50 from due to read, ms",
    "b-p99": "the same, p99",
    "b-cores": "the same, nodes' processor, cores",
    "d-trip-p50-1000": "listener: round trip, p50, 1 KB, ms",
    "d-trip-p50-100": "the same, 100 B",
    "d-produced-mb-per-s-1000": "listener: produced, 1 KB, MB/s",
    "d-produced-mb-per-s-100": "the same, 100 B",
    "d-produced-nodes-cpu-s-per-gb-1000": "listener: nodes' processor, produced, 1 KB, s/GB",
    "d-produced-nodes-cpu-s-per-gb-100": "the same, 100 B",
    "d-consumed-mb-per-s-1000": "listener: consumed, 1 KB, MB/s",
    "d-consumed-mb-per-s-100": "the same, 100 B",
    "d-consumed-nodes-cpu-s-per-gb-1000": "listener: nodes' processor, consumed, 1 KB, s/GB",
    "single-200-ack-p50": "listener: a record at 200/s until acknowledged, p50, ms",
    "single-200-ack-p99": "the same, p99",
    "many-p50": "100 publishers of 10/s, from due to read, p50, ms",
    "many-p99": "the same, p99",
    "i-own-median": "leader killed: gap, own API, median, s",
    "i-client-median": "the same, Kafka client",
    "i-own-silent": "leader silent: gap, own API, s",
    "i-client-silent": "the same, Kafka client with its own time limits",
    "spark-source": "Spark: source, rows/s",
    "spark-sink": "Spark: sink, rows/s",
}
"""Rows of the results, and what they are called here."""


def table() -> str:
    """Ours, Kafka's with each record synced, Kafka's with its default flush, and the ratio."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    by_name = {row["row"]: row for row in found}
    head = "| | ours | Kafka, synced | default flush | ratio |\n|---|--:|--:|--:|--:|\n"
    return head + "".join(_line(by_name, name, what) for name, what in ROWS.items())


def _line(rows: dict[str, dict[str, Any]], name: str, what: str) -> str:
    row, default = rows[name], rows.get(f"{name}-default", {"peer": None})
    cells = [number_text(value) for value in (row["ours"], row["peer"], default["peer"])]
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    return f"| {' | '.join([what, *cells, ratio])} |\n"
