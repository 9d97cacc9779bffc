"""Queries with `where`, and of views and typed topics, from the nodes of a real cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from samelog.admin.client import log_history
from samelog.spark import register
from samelog.spark.errors import BadOption, NotReadable
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S
from tests.spark.cluster import config
from tests.spark.local import Journal, batch_reader, rows
from tests.typed.known import schema_text

TYPED = StructType(
    [
        StructField("symbol", StringType()),
        StructField("price", DoubleType()),
        StructField("offset", LongType()),
    ]
)


def run(world: World, *command: str) -> None:
    """A command that works, once the cluster's level allows it."""
    config_of = ("--config", config(world))
    wait_for(lambda: samelog(*command, *config_of).returncode == 0, " ".join(command))


def ticks(world: World, topic: str, count: int = 3000) -> None:
    """A topic with a schema, and rows of it."""
    file = world.directory / f"{topic}.json"
    file.write_text(schema_text("symbol string", "price float64"))
    run(world, "topic", "create", topic, "--partitions", "2")
    run(world, "schema", "set", topic, str(file))
    append(world, topic, 0, count)


def append(world: World, topic: str, start: int, stop: int) -> None:
    with world.publisher(f"spark-{topic}-{start}", topic) as publisher:
        for partition in (0, 1):
            numbers = range(start + partition, stop, 2)
            found = [{"symbol": f"S{n % 100}", "price": float(n)} for n in numbers]
            publisher.append_rows(found, partition=partition)
        publisher.wait_merged(timeout=PATIENCE_S)
    for partition in (0, 1):
        world.wait_offset(stop // 2, topic, partition)


def read(world: World, topic: str, **options: object) -> list[dict[str, Any]]:
    """The rows of a batch query, with its columns."""
    told = {"config": config(world), "subscribe": topic, "valueFormat": "json", **options}
    reader = batch_reader(schema=TYPED, **told)
    return rows(reader, reader.partitions())


def test_nodes_leave_out_what_does_not_pass(world: World, tmp_path: Path) -> None:
    ticks(world, "where")
    where = "symbol IN ('S7', 'S8') AND price >= 100"
    wanted = [n for n in range(100, 3000) if n % 100 in (7, 8)]
    found = read(world, "where", where=where, directory=tmp_path / "no-copies")
    assert sorted(row["price"] for row in found) == wanted
    assert all(row["offset"] == row["price"] // 2 for row in found)
    found = read(world, "where", where=where, maxRecordsPerPartition=100)  # many tasks
    assert sorted(row["price"] for row in found) == wanted
    found = read(world, "where", where=where, isolation="read_committed")
    assert sorted(row["price"] for row in found) == wanted
    assert read(world, "where", where="price < 0") == []


def test_a_stream_goes_on_where_nothing_passes(world: World) -> None:
    ticks(world, "where-stream", 200)
    told = {"config": config(world), "subscribe": "where-stream", "startingOffsets": "earliest"}
    journal = Journal(**told, where="price = 7 OR price = 307")
    assert journal.run() == [[], [b'{"symbol":"S7","price":7.0}']]
    append(world, "where-stream", 200, 300)
    assert journal.run() == [[]]
    append(world, "where-stream", 300, 400)
    journal.restart()
    assert journal.run() == [[b'{"symbol":"S7","price":307.0}']]
    journal.reader.stop()


def test_topics_without_a_schema_by_key(world: World) -> None:
    with world.publisher("spark-keyed", "keyed") as publisher:
        for n in range(100):
            publisher.append(b"v%d" % n, key=b"k%d" % (n % 10))
        publisher.wait_merged(timeout=PATIENCE_S)
    world.wait_offset(100, "keyed")
    reader = batch_reader(config=config(world), subscribe="keyed", where="_key = 'k3'")
    found = rows(reader, reader.partitions())
    assert [row["value"] for row in found] == [b"v%d" % n for n in range(3, 100, 10)]


def test_views_and_events_are_read_with_their_columns(world: World, spark: SparkSession) -> None:
    ticks(world, "viewed")
    run(
        world,
        *("topic", "create", "of-viewed", "--as"),
        "SELECT symbol, price FROM viewed WHERE price >= 2500",
    )
    assert not list(log_history(config(world), "of-viewed")), "a view has no files"
    run(world, "topic", "create", "__events")
    run(world, "topic", "create", "noticed")
    register(spark)
    load = spark.read.format("samelog").option("config", config(world))
    load = load.option("valueFormat", "json")
    few = load.option("subscribe", "of-viewed").option("where", "symbol = 'S7'").load()
    assert few.columns[:2] == ["symbol", "price"]
    assert sorted(row.price for row in few.collect()) == [2507.0, 2607.0, 2707.0, 2807.0, 2907.0]
    all_of_it = load.option("subscribe", "of-viewed").option("where", "TRUE").load()
    assert all_of_it.count() == 500

    def subjects() -> list[str]:
        events = load.option("subscribe", "__events").option("where", "kind LIKE 'topic%'").load()
        assert events.columns[:5] == ["number", "at_ms", "kind", "subject", "detail"]
        return [row.subject for row in events.collect()]

    wait_for(lambda: any("noticed" in each for each in subjects()), "the event is there")


def test_a_condition_that_cannot_be_evaluated_is_an_option_that_is_wrong(
    world: World, tmp_path: Path
) -> None:
    ticks(world, "wrong", 2)
    for where, why in (("nothing = 1", "no column 'nothing'"), ("price >", "where: ")):
        with pytest.raises(BadOption, match=why):
            read(world, "wrong", where=where)
    with pytest.raises(BadOption, match="needs the option config"):
        batch_reader(directory=tmp_path, subscribe="wrong", where="_key = 'a'")
    with pytest.raises(BadOption, match="an archive has none"):
        batch_reader(archive=str(tmp_path), subscribe="wrong", where="_key = 'a'")
    with pytest.raises(NotReadable, match="cannot be looked up"):
        batch_reader(config=config(world), subscribe="missing", where="_key = 'a'")
