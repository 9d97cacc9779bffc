"""README's table has the medians of bench/results, losses included."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOUND = {
    row["row"]: row for row in json.loads((ROOT / "bench/results/kafka.json").read_text())["rows"]
}
MEASURED = {
    "End to end, MB/s": ("a-1000", "a-1000-default", "a-1000-nats"),
    "Processor time of all processes, s/GB": ("c-1000", "c-1000-default", ""),
    "p50 from due to read, 1,000 records/s, ms": ("b-p50", "b-p50-default", "b-p50-nats"),
    "p99 from due to read, 1,000 records/s, ms": ("b-p99", "b-p99-default", "b-p99-nats"),
    "The same with a Kafka client, p99, ms": ("b-p99-listener", "b-p99-default", ""),
    "Round trip of a Kafka client, `acks=all`, p50, ms": (
        "d-trip-p50-1000",
        "d-trip-p50-1000-default",
        "",
    ),
    "Leader killed: gap in acknowledgements, median, s": ("i-own-median", "", ""),
    "Leader silent: gap of a Kafka client, s": ("i-client-silent", "", ""),
}
"""Row of the table -> the rows of the results: beside Kafka that syncs, Kafka as it is, NATS."""


def shown(value: float) -> str:
    """Three digits, as the results have them."""
    return f"{value:.3g}"


def test_the_table_has_the_medians_and_marks_the_best() -> None:
    lines = re.findall(r"^\| (.+?) \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    table = {name: cells.split(" | ") for name, cells in lines if name in MEASURED}
    assert table.keys() == MEASURED.keys()
    for name, rows in MEASURED.items():
        values = [FOUND[rows[0]]["ours"], *(FOUND[row]["peer"] if row else None for row in rows)]
        best = (max if "MB/s" in name else min)(each for each in values if each is not None)
        wanted = ["–" if each is None else shown(each) for each in values]
        marked = [
            f"**{text}**" if value == best else text
            for value, text in zip(values, wanted, strict=True)
        ]
        assert table[name] == marked, name
