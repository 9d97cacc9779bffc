"""The pipeline `flights` on some of its real data, against counts that plain Python makes of it."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from samelog.cli.main import main
from samelog.examples.flights import data
from samelog.examples.flights import statistics as flights
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.timeout(400)
SOME = 2500
"""Of each airport's flights: the first week of the year, and a bit."""
Counts = tuple[int, int, int, int, float | None]
"""Flights, cancelled, arrived, late, mean arrival delay."""
PNG = b"\x89PNG"


def publish(world: World, topic: str, found: data.Dataset, session: str) -> None:
    with world.publisher(session, topic) as publisher:
        publisher.append_many(found.values, keys=found.keys, timestamps=found.timestamps_ms)
        publisher.wait_merged(timeout=PATIENCE_S)


def some(airport: str, start: int, stop: int) -> data.Dataset:
    values, keys, times = data.load(airport)
    return data.Dataset(values[start:stop], keys[start:stop], times[start:stop])


def weather_of(row: dict[str, Any] | None) -> str:
    """As the pipeline says, in other words."""
    if row is None or row["visib"] is None:
        return "unknown"
    if (row["precip"] or 0) > 0:
        return "snow or ice" if row["temp"] is not None and row["temp"] <= 34 else "rain"
    if row["visib"] < 3:
        return "fog"
    return "wind" if (row["wind_speed"] or 0) >= 20 else "fair"


def week_of(time_hour: str) -> str:
    """The Monday, in New York's standard time."""
    local = datetime.fromisoformat(time_hour) - timedelta(hours=5)
    return (local - timedelta(days=local.weekday())).strftime("%Y-%m-%d")


def expected(values: list[bytes]) -> dict[str, Counts]:
    """Key → flights, cancelled, arrived, late, mean arrival delay."""
    observed = map(json.loads, data.load_weather().values)
    weather = {(row["origin"], row["time_hour"]): weather_of(row) for row in observed}
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in map(json.loads, values):
        found = weather.get((row["origin"], row["time_hour"]), "unknown")
        key = "|".join((week_of(row["time_hour"]), row["carrier"], row["origin"], found))
        groups[key].append(row)
    return {key: counted(rows) for key, rows in groups.items()}


def counted(rows: list[dict[str, Any]]) -> Counts:
    delays = [row["arr_delay"] for row in rows if row["arr_delay"] is not None]
    cancelled = sum(row["dep_time"] is None for row in rows)
    mean = sum(delays) / len(delays) if delays else None
    return len(rows), cancelled, len(delays), sum(each >= 15 for each in delays), mean


def as_counted(row: Any) -> Counts:
    names = ("flights", "cancelled", "arrived", "late", "mean_arrival_delay")
    told = row if isinstance(row, dict) else row.asDict()
    flights, cancelled, arrived, late = (int(told[name]) for name in names[:4])
    return flights, cancelled, arrived, late, told.get(names[4])


def same(found: dict[str, Counts], values: list[bytes]) -> None:
    wanted = expected(values)
    assert sorted(found) == sorted(wanted)
    for key, (*counts, mean) in wanted.items():
        assert found[key][:4] == tuple(counts), key
        told = found[key][4]
        assert (told is None) == (mean is None)
        assert told is None or mean is None or math.isclose(told, mean, abs_tol=0.006)


def test_statistics_are_those_of_the_flights_though_a_batch_fails_and_more_come(
    spark: SparkSession, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = some("EWR", 0, SOME)
    publish(world, "weather", data.load_weather(), "weather")
    publish(world, "flights", first, "ewr")
    arguments = ["--config", world.cluster.client_file, "--path", str(tmp_path / "lake")]
    run = CliRunner()
    command = ["pipeline", "run", "flights", *arguments, "--json"]
    with monkeypatch.context() as patch:
        patch.setattr(flights.FlightsWriter, "_to_topic", broken)
        failed = run.invoke(main, command)
    assert (failed.exit_code, "injected" in failed.stderr) == (1, True)
    second = some("JFK", 0, SOME)
    publish(world, "flights", second, "jfk")
    picture = tmp_path / "delays.png"
    done = run.invoke(main, [*command, "--picture", str(picture)])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["picture"], picture.read_bytes()[:4]) == (str(picture), PNG)
    values = first.values + second.values
    job = flights.Flights(config=world.cluster.client_file, path=str(tmp_path / "lake"))
    rows = job.table(spark).read().collect()
    assert told["rows"] == len(rows)
    keyed = {"|".join((f"{r.week:%Y-%m-%d}", r.carrier, r.origin, r.weather)): r for r in rows}
    assert len(keyed) == len(rows)
    same({key: as_counted(row) for key, row in keyed.items()}, values)
    same(newest_in_topic(world, "flight-delays", expected(values)), values)


def broken(*arguments: object) -> None:
    raise RuntimeError("injected")


def newest_in_topic(world: World, topic: str, wanted: dict[str, Any]) -> dict[str, Counts]:
    """The last value of each key."""
    newest: dict[str, Any] = {}
    with world.subscriber("delays", topic) as subscriber:

        def is_there() -> bool:
            for record in subscriber.batch(max_records=10_000, timeout=0.2):
                newest[(record.key or b"").decode()] = as_counted(json.loads(record.value or b""))
            counts = (sum(int(row[0]) for row in each.values()) for each in (newest, wanted))
            return len(set(counts)) == 1

        wait_for(is_there, "all statistics")
    return newest
