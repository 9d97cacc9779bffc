"""Values in Confluent's wire format as columns, each by the schema that a registry has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from samelog.spark.errors import BadOption, CorruptValue, NotReadable
from samelog.typed.framing import HEAD
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S
from tests.spark.local import batch_reader, rows, source
from tests.subscriber.merged import Growing
from tests.typed.known import schema_text
from tests.typed.registries import FakeRegistry, framed, running

COLUMNS = StructType(
    [
        StructField("name", StringType()),
        StructField("size", LongType()),
        StructField("_corrupt", BinaryType()),
    ]
)
OLD: list[dict[str, Any]] = [{"name": "size", "type": "int"}]
NEW: list[dict[str, Any]] = [
    {"name": "more", "type": "double"},
    {"name": "size", "type": "long"},
    *({"name": name, "type": ["null", "string"], "default": None} for name in ("name",)),
]


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running() as started:
        yield started


def typed(path: Path, values: list[bytes | None], schema: StructType, **options: object) -> Any:
    """The rows that a query has of these values."""
    path.mkdir(exist_ok=True)
    Growing(path).append(*values)
    told = {"subscribe": "t", "directory": path, "valueFormat": "avro", **options}
    reader = batch_reader(schema=schema, **told)
    return rows(reader, list(reader.partitions()))


def test_each_value_is_read_by_the_schema_of_its_id(tmp_path: Path, registry: FakeRegistry) -> None:
    old, new = framed(registry, OLD, size=1), framed(registry, NEW, more=0.5, size=2, name="b")
    values: list[bytes | None] = [
        old,
        None,
        new,
        new[:-1],
        new + b"x",
        b"plain",
        HEAD.pack(0, 99) + b"x",
    ]
    found = typed(tmp_path, values, COLUMNS, registry=registry.url)
    nothing = {"name": None, "size": None}
    assert found == [
        {"name": None, "size": 1, "_corrupt": None},
        {**nothing, "_corrupt": None},
        {"name": "b", "size": 2, "_corrupt": None},
        *({**nothing, "_corrupt": value} for value in values[3:]),
    ]
    assert registry.asked.count("GET /schemas/ids/99") <= 1
    with pytest.raises(CorruptValue, match="offset 3"):
        typed(tmp_path / "b", values, COLUMNS, registry=registry.url, mode="failfast")


def test_what_a_column_cannot_hold_is_corrupt(tmp_path: Path, registry: FakeRegistry) -> None:
    fraction = framed(registry, [{"name": "size", "type": "double"}], size=1.5)
    big = HEAD.pack(0, registry.put("JSON", "{}")) + b'{"size":1%s}' % (b"0" * 40)
    text = HEAD.pack(0, registry.put("JSON", "{}")) + b'{"size":"x"}'
    whole = framed(registry, [{"name": "size", "type": "double"}], size=2.0)
    found = typed(tmp_path, [fraction, big, text, whole], COLUMNS, registry=registry.url)
    assert [row["_corrupt"] for row in found] == [fraction, big, text, None]
    assert found[3]["size"] == 2


def test_a_registry_that_does_not_answer_ends_the_query(tmp_path: Path) -> None:
    with pytest.raises(NotReadable, match="does not answer"):
        typed(tmp_path, [HEAD.pack(0, 1) + b"x"], COLUMNS, registry="http://127.0.0.1:9")


def test_options_that_do_not_go_together() -> None:
    told: dict[str, object] = {"subscribe": "t", "registry": "http://x"}
    with pytest.raises(BadOption, match="registry, which has it, goes with valueFormat=avro"):
        source(**told, valueFormat="json").schema()
    with pytest.raises(BadOption, match="or registry, which has it"):
        source(**told, valueFormat="avro", avroSchema="{}").schema()
    with pytest.raises(BadOption, match="need a valueFormat"):
        source(**told).schema()
    with pytest.raises(BadOption, match="is no URL of a registry"):
        batch_reader(schema=COLUMNS, subscribe="t", registry="x:1", valueFormat="avro")


def test_spark_takes_the_columns_of_the_topic(
    spark: SparkSession, world: World, registry: FakeRegistry
) -> None:
    config = world.cluster.client_file
    file = world.directory / "framed.json"
    file.write_text(schema_text("a int64", "b string", value_format="avro"))
    told = ("--config", config)
    made = ("topic", "create", "framed", *told)
    wait_for(lambda: samelog(*made).returncode == 0, "the topic is made")
    wait_for(lambda: samelog("schema", "set", "framed", str(file), *told).returncode == 0, "set")
    with world.publisher("framed", "framed", registry=registry.url) as publisher:
        publisher.append_rows([{"a": number, "b": f"b{number}"} for number in range(5)])
        publisher.wait_merged(timeout=PATIENCE_S)
    options = {"config": config, "subscribe": "framed", "valueFormat": "avro"}
    query = spark.read.format("samelog").options(**options, registry=registry.url).load()
    found = query.select("a", "b", "offset").orderBy("offset").collect()
    assert [tuple(row) for row in found] == [(n, f"b{n}", n) for n in range(5)]
