"""Topics that statements define, in a real cluster: rows as records, once; and what is refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic
from samelog.cli.main import main
from samelog.spark.errors import BadOption
from samelog.spark.pipelines import query_topic
from samelog.spark.pipelines.query_definition import parse_tables
from samelog.spark.pipelines.running import wait_for_end
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.timeout(400)
FLIGHTS = "carrier STRING, origin STRING, delay DOUBLE, at TIMESTAMP"


def flight(number: int) -> bytes:
    """Each in a minute of its own; every fourth one of each carrier in turn."""
    row = {
        "carrier": ("AA", "B6")[number % 2],
        "origin": ("EWR", "JFK")[number // 2 % 2],
        "delay": float(number),
        "at": f"2013-01-01T{number // 60:02}:{number % 60:02}:00Z",
    }
    return json.dumps(row).encode()


def publish(world: World, topic: str, *values: bytes) -> None:
    with world.publisher(f"s-{topic}", topic) as publisher:
        publisher.append_many(list(values))
        publisher.wait_merged(timeout=PATIENCE_S)


def records(world: World, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """All of a topic, of which there are so many."""
    found = world.read(count, topic=topic, name=f"reads-{topic}-{count}")
    status = world.status(world.cluster.nodes[0])
    assert status is not None
    ends = [each.end_offset for each in status.partitions if each.topic == topic]
    assert sum(ends) >= len(found) == count
    return [(record.key, record.value) for record in found]


def run(world: World, checkpoint: Path, *arguments: str) -> Result:
    told = ["--config", world.cluster.client_file, "--checkpoint", str(checkpoint), "--json"]
    command = ["pipeline", "run", "query-topic", *told, "--trigger", "available-now"]
    return CliRunner().invoke(main, [*command, *arguments])


def test_rows_of_a_filter_are_published_once(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    arguments = ["--from", f"departures={FLIGHTS}", "--to", "late", "--key", "carrier"]
    sql = "SELECT carrier, delay, cast(null AS STRING) AS note FROM departures WHERE delay >= 5"
    for stop in (10, 20):
        publish(world, "departures", *map(flight, range(stop - 10, stop)))
        world.wait_offset(stop, "departures")
        done = run(world, tmp_path / "c", *arguments, "--sql", sql)
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["rows"] == 10
    found = records(world, "late", 15)
    assert found[0] == (b"B6", b'{"carrier":"B6","delay":5.0,"note":null}')
    delays = [json.loads(value or b"")["delay"] for _, value in found]
    assert delays == [float(number) for number in range(5, 20)]


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_joins_and_windows_as_arrow(spark: SparkSession, world: World, tmp_path: Path) -> None:
    publish(world, "trips", *map(flight, range(120)))
    publish(world, "airports", b'{"faa": "EWR", "name": "Newark"}', b'{"faa": "JFK", "name": "K"}')
    ask(world.cluster.client_config(), CreateTopic("hours", 1, {}))
    text = f"""
        [query]
        topic = "hours"
        sql = '''SELECT name, window.start AS hour, count(*) AS n FROM flights JOIN airports
                 ON origin = faa GROUP BY window(at, '1 hour'), name;'''
        key = "name"
        format = "arrow"
        output_mode = "update"
        [[source]]
        topic = "trips"
        view = "flights"
        schema = "{FLIGHTS}"
        watermark = "at, 10 minutes"
        [[source]]
        topic = "airports"
        schema = "faa STRING, name STRING"
        static = true
    """
    wanted = parse_tables(tomllib.loads(text))
    options: dict[str, Any] = {"trigger": "available-now", "checkpoint": str(tmp_path / "c")}
    wait_for_end(query_topic.start(spark, wanted, config=world.cluster.client_file, **options))
    told = {"subscribe": "hours", "valueFormat": "arrow", "config": world.cluster.client_file}
    schema = "name STRING, hour TIMESTAMP, n BIGINT, key BINARY"

    def rows() -> list[tuple[str, str, int, str]]:
        frame = spark.read.format("samelog").options(**told).schema(schema).load()
        hour = "date_format(hour, 'HH') AS hour"
        found = frame.selectExpr("name", hour, "n", "CAST(key AS STRING) AS key").collect()
        return sorted((row.name, row.hour, row.n, row.key) for row in found)

    wait_for(lambda: len(rows()) >= 4, "rows of four windows")
    assert rows() == [(name, hour, 30, name) for name in ("K", "Newark") for hour in ("00", "01")]


def test_what_the_statement_lacks_is_said(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    source = ["--from", f"flights={FLIGHTS}", "--to", "never"]
    for more, text in (
        (["--sql", "SELECT nothing FROM flights"], "nothing"),
        (["--sql", "SELECT carrier FROM flights", "--key", "x"], "the key is x"),
        (["--sql", "SELECT 1 AS one"], "the statement reads no stream"),
        (["--sql", "SELECT * FROM flights", "--watermark", "flights=x, 1 hour"], "is of x"),
    ):
        done = run(world, tmp_path / "c", *source, *more)
        assert (done.exit_code != 0, text in done.stderr) == (True, True), done.stderr


QUERY = {"topic": "out", "sql": "SELECT 1"}
SOURCE = {"topic": "in.a-b", "schema": "a INT"}


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({}, "a definition has a table"),
        ({"query": QUERY, "source": []}, "a definition has a table"),
        ({"query": QUERY, "source": [SOURCE], "sources": []}, "no entry sources"),
        ({"query": {"topic": "out"}, "source": [SOURCE]}, "needs sql"),
        ({"query": {**QUERY, "topic": "../x"}, "source": [SOURCE]}, "topic: "),
        ({"query": {**QUERY, "format": "xml"}, "source": [SOURCE]}, "'xml' is not one of json"),
        ({"query": {**QUERY, "name": "A b"}, "source": [SOURCE]}, "name: "),
        ({"query": QUERY, "source": [SOURCE, SOURCE]}, "two sources are called in_a_b"),
        ({"query": QUERY, "source": [{**SOURCE, "static": True}]}, "all sources are static"),
        ({"query": QUERY, "source": [{**SOURCE, "view": "1;"}]}, "is no name for a view"),
        ({"query": QUERY, "source": [{**SOURCE, "watermark": "at"}]}, "watermark 'at' is not as"),
        ({"query": QUERY, "source": [{**SOURCE, "static": 1}]}, "static is true or false"),
        ({"query": QUERY, "source": ["x"]}, "a table with a topic"),
    ],
)
def test_a_definition_that_is_wrong_is_refused(told: dict[str, Any], text: str) -> None:
    with pytest.raises(BadOption, match=text):
        parse_tables(told)
