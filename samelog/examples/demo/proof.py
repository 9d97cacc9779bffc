"""What the demo proves, from the files alone: identical logs, every flight exactly once, each
airport's order kept.

The last part is the pipeline `flights`, run as its user would, on the demo's cluster.

Invariant: nothing a running process said is used here; only merged segment files and the source
data.
Also: the pipeline's process is ended here, whatever happens; why it failed is part of the
report, and nothing else of the demo fails with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from samelog import Publisher, Subscriber
from samelog.examples.flights.data import AIRPORTS, TOPIC, TOTAL, WEATHER, load, load_weather

TIMEOUT_S = 600.0
MERGE_TIMEOUT_S = 60.0


def publish_weather(config: str, directory: str) -> None:
    """Publish the weather, and wait until it is merged. Raises DataMissing, PublisherError."""
    weather = load_weather()
    with Publisher(WEATHER, session="weather", directory=directory, config=config) as publisher:
        publisher.append_many(weather.values, keys=weather.keys, timestamps=weather.timestamps_ms)
        publisher.wait_merged(timeout=MERGE_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A run of the pipeline: paths of a client.toml, of its lake, and of the picture."""

    config: str
    lake: str
    picture: str

    def run(self, log_file: str) -> dict[str, Any]:
        """Its report, as `--json` gives it; or `error`, why there is none."""
        options = {
            "config": self.config,
            "path": self.lake,
            "flights": TOPIC,
            "weather": WEATHER,
            "picture": self.picture,
        }
        told = [part for key, value in options.items() for part in (f"--{key}", value)]
        command = [sys.executable, "-m", "samelog", "pipeline", "run", "flights", "--json", *told]
        with open(log_file, "w+", encoding="utf-8") as log:
            try:
                done = subprocess.run(
                    command, stdout=subprocess.PIPE, stderr=log, timeout=TIMEOUT_S, check=False
                )
            except subprocess.TimeoutExpired:
                return {"error": f"the pipeline did not end within {TIMEOUT_S:.0f} s"}
            log.seek(0)
            if done.returncode != 0:
                return {"error": _reason(log.read())}
        report: dict[str, Any] = json.loads(done.stdout)
        return report


def _reason(text: str) -> str:
    """What the command said last."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("samelog: ") if lines else "the pipeline said nothing"


READ_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class LogFacts:
    """One copy of the merged log: where, how many bytes, and the SHA-256 of its segments."""

    directory: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Proof:
    """What holds of the merged log."""

    records: int
    unique: int
    complete: bool
    order_kept: bool


def partition_directory(merged: str) -> str:
    """The directory of the demo's one partition below a `merged` directory."""
    return os.path.join(merged, f"{TOPIC}-0")


def facts(directory: str) -> LogFacts:
    """Size and checksum of one copy."""
    digest = hashlib.sha256()
    size = 0
    for name in sorted(os.listdir(directory)):
        if not name.endswith(".log"):
            continue
        with open(os.path.join(directory, name), "rb") as file:
            while block := file.read(READ_BYTES):
                digest.update(block)
                size += len(block)
    return LogFacts(directory, size, digest.hexdigest())


def read_table(merged: str) -> Any:
    """The whole merged log in a `merged` directory as one Arrow table, read from its files."""
    import pyarrow

    tables: list[Any] = []
    with Subscriber(TOPIC, directory=merged, start="earliest", follow=False) as subscriber:
        while (table := subscriber.arrow_records(max_records=TOTAL, timeout=0)).num_rows:
            tables.append(table)
    return pyarrow.concat_tables(tables)


def prove(table: Any) -> Proof:
    """Compare a merged log with the source, airport by airport, value by value."""
    values: list[bytes] = table["value"].to_pylist()
    by_airport: dict[str, list[bytes]] = {airport: [] for airport in AIRPORTS}
    for value, airport in zip(values, origins(table), strict=True):
        by_airport[airport].append(value)
    complete = order_kept = True
    for airport in AIRPORTS:
        expected = load(airport).values
        merged = by_airport[airport]
        order_kept = order_kept and merged == expected
        complete = complete and sorted(merged) == sorted(expected)
    return Proof(len(values), len(set(values)), complete, order_kept)


def origins(table: Any) -> list[str]:
    """Of each flight in a merged log, in its order: the airport."""
    return [_airport_of(value) for value in table["value"].to_pylist()]


def _airport_of(value: bytes) -> str:
    start = value.index(b'"origin":"') + 10
    return value[start : start + 3].decode()


def delays_by_carrier(table: Any) -> list[dict[str, Any]]:
    """Arrival delay by carrier: arrived flights, mean and median minutes, worst first."""
    import io

    from pyarrow import json as arrow_json

    lines = b"\n".join(table["value"].to_pylist())
    options = arrow_json.ReadOptions(block_size=64 << 20)
    flights = arrow_json.read_json(io.BytesIO(lines), read_options=options)
    grouped = flights.group_by("carrier").aggregate(
        [("arr_delay", "count"), ("arr_delay", "mean"), ("arr_delay", "approximate_median")]
    )
    rows = [
        {
            "carrier": row["carrier"],
            "flights": row["arr_delay_count"],
            "mean_minutes": round(row["arr_delay_mean"], 1),
            "median_minutes": round(row["arr_delay_approximate_median"], 1),
        }
        for row in grouped.to_pylist()
    ]
    return sorted(rows, key=lambda row: -row["mean_minutes"])
