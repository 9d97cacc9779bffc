"""Values as rows of their topics' schemas in Spark, whatever version wrote each."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from samelog.admin.answers import SchemaInfo, SchemaPage
from samelog.admin.client import ask
from samelog.admin.requests import SetSchema
from samelog.format import _kernels as kernels
from samelog.format.arrow import to_arrow
from samelog.spark.errors import BadOption, NotReadable
from samelog.spark.options import LogAccess
from samelog.spark.payload import typed_values
from samelog.spark.payload.own_schema import spark_type
from samelog.spark.payload.typed_values import SchemaValues, _with_nulls
from samelog.spark.plan.offsets import OffsetRange, PartitionName
from samelog.typed.schema import parse_schema
from samelog.typed.types import parse_type
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S
from tests.spark.local import source
from tests.typed.known import schema_text


def set_schema(world: World, topic: str, follows: int, *columns: str, kind: str) -> None:
    text = schema_text(*columns, value_format=kind)
    ask(world.cluster.client_config(), SetSchema(topic, text, follows))


def make(world: World, topic: str) -> None:
    command = "topic", "create", topic, "--config", world.cluster.client_file
    wait_for(lambda: samelog(*command).returncode == 0, "the topic is made")


def table(spark: SparkSession, world: World, topic: str, **options: str) -> DataFrame:
    told = {"config": world.cluster.client_file, "subscribe": topic, "valueFormat": "schema"}
    return spark.read.format("samelog").options(**told, **options).load()


def test_rows_of_all_versions_come_as_the_newest(spark: SparkSession, world: World) -> None:
    make(world, "versions")
    with world.publisher("v-old", "versions") as publisher:
        publisher.append(b"1,one")  # before there was a schema: it has version 1
        publisher.wait_merged(timeout=PATIENCE_S)
    set_schema(world, "versions", 0, "a int64", "b string", kind="csv")
    with world.publisher("v-late", "versions", ship=False) as publisher:
        publisher.append_rows([{"a": 2, "b": "two"}])
    set_schema(world, "versions", 1, "b string", "c string", "a int64", kind="csv")
    with world.publisher("v-new", "versions") as publisher:
        publisher.append(b"three,c,3")
        publisher.append(b"no,row")
        publisher.append(None, key=b"k")
        publisher.wait_merged(timeout=PATIENCE_S)
    with world.publisher("v-late", "versions") as publisher:
        publisher.wait_merged(timeout=PATIENCE_S)
    frame = table(spark, world, "versions").orderBy("offset")
    found = [tuple(row) for row in frame.select("offset", "a", "b", "c", "_corrupt").collect()]
    assert found == [
        (0, 1, "one", None, None),
        (1, 3, "three", "c", None),
        (2, None, None, None, b"no,row"),
        (3, None, None, None, None),
        (4, 2, "two", None, None),
    ]
    with pytest.raises(Exception, match="offset 2"):
        table(spark, world, "versions", mode="failfast").collect()


def test_avro_and_arrow_need_no_options(spark: SparkSession, world: World) -> None:
    for kind in ("avro", "arrow"):
        topic = f"typed-{kind}"
        make(world, topic)
        columns = "a int64", "n uint8", "t timestamp[us,UTC]"
        set_schema(world, topic, 0, *columns, kind=kind)
        with world.publisher(topic, topic) as publisher:
            publisher.append_rows([{"a": number, "n": number} for number in range(3)])
            publisher.wait_merged(timeout=PATIENCE_S)
        frame = table(spark, world, topic)
        assert [(f.name, f.dataType.simpleString()) for f in frame.schema][:3] == [
            *(("a", "bigint"), ("n", "smallint"), ("t", "timestamp"))
        ]
        assert sorted(tuple(row) for row in frame.select("a", "n").collect()) == [
            *((0, 0), (1, 1), (2, 2))
        ]


def test_tasks_ask_again_when_newer_records_come(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [schema_text(*columns, value_format="csv") for columns in (("a int32",), ("b string",))]
    pages = [page(texts[:1], 1, (0, 1)), page(texts, 2, (0, 1), (1, 2))]
    monkeypatch.setattr(typed_values, "_pages", {})
    monkeypatch.setattr(typed_values, "_asked", lambda path, name: pages.pop(0))
    data = kernels.build_batches(
        [b"1", b"2"], timestamps=5, batch_bytes=1 << 20, max_record_bytes=1 << 20
    )
    records = to_arrow(data, 0, len(data), topic="t", partition=0)
    read = OffsetRange(PartitionName("t", 0), "id", 0, 2)
    values = SchemaValues(LogAccess(config="/x/client.toml"), {}, "")
    first = values.decode(records.slice(0, 1), read, pa.schema([("a", pa.int32())]))
    assert first.columns.to_pylist() == [{"a": 1}]
    both = values.decode(records, read, pa.schema([("b", pa.string())]))
    assert pages == []
    assert both.columns.to_pylist() == [{"b": None}, {"b": "2"}]


def test_a_record_is_not_read_by_the_schema_of_the_next_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The topic was created again behind the records' reading."""
    text = schema_text("a int32", value_format="csv")
    monkeypatch.setattr(typed_values, "_pages", {})
    monkeypatch.setattr(typed_values, "LEARN_S", 0.0)
    monkeypatch.setattr(typed_values, "_asked", lambda path, name: page([text], 9, (0, 1)))
    data = kernels.build_batches(
        [b"1"], timestamps=5, batch_bytes=1 << 20, max_record_bytes=1 << 20
    )
    records = to_arrow(data, 0, len(data), topic="t", partition=0)
    values = SchemaValues(LogAccess(config="/x/client.toml"), {"older": 3}, "")
    columns = pa.schema([("a", pa.int32())])
    with pytest.raises(NotReadable, match="deleted and created again"):
        values.decode(records, OffsetRange(PartitionName("t", 0), "older", 0, 1), columns)
    found = values.decode(records, OffsetRange(PartitionName("t", 0), "id", 0, 1), columns)
    assert found.columns.to_pylist() == [{"a": 1}]


def page(texts: list[str], next_offset: int, *since: tuple[int, int]) -> SchemaPage:
    """What the cluster says of a topic."""
    parsed = [parse_schema(text) for text in texts]
    infos = [SchemaInfo(n, 0, each.fingerprint, each.text) for n, each in enumerate(parsed, 1)]
    told = "t", "none", len(infos), tuple(infos)
    return SchemaPage(*told, more=False, since=since, topic_id="id", next_offset=next_offset)


def test_options_that_do_not_go_together() -> None:
    with pytest.raises(BadOption, match="with valueFormat=schema the topics have it"):
        source(subscribe="t", valueFormat="schema", valueSchema="a INT").schema()
    with pytest.raises(BadOption, match="needs the columns"):
        source(subscribe="t", valueFormat="schema", directory="/x", readMode="local").schema()


def test_bad_values_are_rows_of_nulls_in_their_place() -> None:
    rows = pa.table({"a": [1, 2, 3]})
    found = _with_nulls(rows, [0, 0, 3], {1: "bad", 2: "worse"})
    assert found.columns["a"].to_pylist() == [1, 2, None, None, 3]
    assert found.sources is not None
    assert found.sources.to_pylist() == [0, 0, 1, 2, 3]
    assert found.bad == {1: "bad", 2: "worse"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("list<int32>", "ARRAY<INT>"),
        ("decimal128(9, 2)", "DECIMAL(9,2)"),
        ("uint64", "DECIMAL(20,0)"),
        ("timestamp[us, UTC]", "TIMESTAMP"),
        ("timestamp[ms]", "TIMESTAMP_NTZ"),
        ("timestamp[ns, UTC]", None),
        ("list<timestamp[ns]>", None),
    ],
)
def test_types_lose_nothing(text: str, wanted: str | None) -> None:
    assert spark_type(parse_type(text)) == wanted
