"""Queries of typed topics whose conditions nodes evaluate: those of `where`, and Spark's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNull, StringStartsWith
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from samelog.spark import register
from samelog.spark.errors import BadOption
from samelog.spark.source.batch_reader import NarrowingReader
from tests.e2e.harness import World
from tests.patience import PATIENCE_S
from tests.spark.cluster import config
from tests.spark.local import batch_reader, rows
from tests.spark.test_row_filters import run
from tests.typed.known import schema_text

OLD = StructType(
    [
        StructField("symbol", StringType()),
        StructField("price", DoubleType()),
        StructField("offset", LongType()),
    ]
)
NEW = StructType([StructField("venue", StringType()), *OLD.fields])
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def two_versions(world: World, topic: str, kind: str) -> None:
    """A topic with 100 rows of each of two versions, and a value that is no row."""
    first, second = ("symbol string", "price float64"), ("venue string",)
    run(world, "topic", "create", topic)
    for number, columns in enumerate((first, first + second)):
        file = world.directory / f"{topic}-{number}.json"
        file.write_text(schema_text(*columns, value_format=kind))
        run(world, "schema", "set", topic, str(file))
        with world.publisher(f"{topic}-{number}", topic) as publisher:
            more = {"venue": "X"} if number else {}
            found = [{"symbol": f"S{n % 10}", "price": n / 2, **more} for n in range(100)]
            publisher.append_rows(found)
            publisher.wait_merged(timeout=PATIENCE_S)
    with world.publisher(f"{topic}-bad", topic) as publisher:
        publisher.append(b"\xffno row")
        publisher.wait_merged(timeout=PATIENCE_S)


def told(world: World, topic: str, **options: object) -> dict[str, object]:
    return {"config": config(world), "subscribe": topic, "valueFormat": "schema", **options}


def pushed(
    world: World, topic: str, *filters: Filter, schema: StructType = NEW, **options: object
) -> tuple[str | None, list[dict[str, Any]]]:
    """What nodes are asked for, and what comes of it."""
    options = told(world, topic, pushdown="true", **options)
    reader = batch_reader(schema=schema, **options)
    assert isinstance(reader, NarrowingReader)
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark evaluates them, too"
    return reader.tasks.access.where, rows(reader, reader.partitions())


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_where_and_filters_leave_out_rows_of_any_version(world: World, kind: str) -> None:
    topic = f"narrowed-{kind}"
    two_versions(world, topic, kind)
    reader = batch_reader(schema=NEW, **told(world, topic, where="price > 48 AND symbol = 'S8'"))
    found = rows(reader, reader.partitions())
    assert [(row["price"], row["venue"], row["offset"]) for row in found] == [
        *((49.0, None, 98), (49.0, "X", 198), (None, None, 200))
    ]
    where, found = pushed(world, topic, GreaterThan(("price",), 48.0), EqualTo(("symbol",), "S8"))
    assert where == '("price" > 48.0) AND "symbol" = \'S8\''
    assert [row["offset"] for row in found] == [98, 198, 200]
    assert [row["offset"] for row in pushed(world, topic, IsNull(("venue",)))[1]] == [
        *range(100),
        200,
    ]
    where, found = pushed(
        world,
        topic,
        In(("symbol",), ("S1", "S2")),
        EqualTo(("venue",), "X"),  # no column of the query
        EqualTo(("offset",), 101),
        schema=OLD,
        where="price < 10",
    )
    assert where == "(price < 10) AND \"symbol\" IN ('S1', 'S2')"
    assert [row["offset"] for row in found] == [101]


def test_copies_and_other_formats_are_read_as_ever(world: World, tmp_path: Path) -> None:
    two_versions(world, "narrowed-not", "json")
    chosen = StringStartsWith(("symbol",), "S")
    assert pushed(world, "narrowed-not", chosen, directory=tmp_path)[0] is None
    assert pushed(world, "narrowed-not", chosen, valueFormat="json")[0] is None
    with pytest.raises(BadOption, match="where and registry"):
        batch_reader(
            schema=NEW, **told(world, "narrowed-not", where="TRUE", registry="http://127.0.0.1:9")
        )
    options = {**told(world, "x", where="TRUE"), "subscribePattern": "narrowed-n.*"}
    options.pop("subscribe")
    with pytest.raises(BadOption, match="name the topics"):
        batch_reader(schema=NEW, **options)


def test_spark_pushes_the_filters_of_a_query(world: World, spark: SparkSession) -> None:
    two_versions(world, "narrowed-spark", "json")
    register(spark)
    spark.conf.set(PUSHDOWN, "true")
    try:
        options = {name: str(text) for name, text in told(world, "narrowed-spark").items()}
        load = spark.read.format("samelog").options(**options, pushdown="true").load
        frame = load().where("price >= 49 AND symbol LIKE 'S8%' AND venue IS NOT NULL")
        assert [tuple(row) for row in frame.select("symbol", "price", "venue").collect()] == [
            ("S8", 49.0, "X")
        ]
        assert load().where("price < 1 OR venue = 'X'").count() == 102
        assert load().where("NOT (symbol IN ('S1', 'S2'))").count() == 160
        assert load().count() == 201
    finally:
        spark.conf.unset(PUSHDOWN)
