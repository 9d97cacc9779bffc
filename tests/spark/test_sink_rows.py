"""Which rows go where: every one to its place, in its order; rows of schemas become records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from samelog.admin.known_schemas import KnownSchemas
from samelog.admin.registry import SchemaRegistry
from samelog.config.load import load_client
from samelog.publisher import RowMisfit
from samelog.publisher.typed_rows import RowEncoder
from samelog.spark.errors import BadOption
from samelog.spark.sink import check_columns, parse_sink_options, pieces
from samelog.spark.sink_rows import encoded
from samelog.store.disk.files import OsFileSystem
from samelog.typed.framing import HEAD
from samelog.typed.schema import parse_schema
from samelog.typed.versions import mark
from tests.cli.fake_nodes import FakeCluster
from tests.typed.known import Known, schema_text
from tests.typed.registries import running

TOPICS = st.sampled_from(["a", "b"])
PARTITIONS = st.none() | st.integers(0, 3)


def batch(places: list[tuple[str | None, int | None]]) -> pa.RecordBatch:
    topics, partitions = zip(*places, strict=True) if places else ((), ())
    columns = {
        "value": pa.array([b"%d" % row for row in range(len(places))], pa.binary()),
        "topic": pa.array(topics, pa.string()),
        "partition": pa.array(partitions, pa.int32()),
    }
    return pa.RecordBatch.from_pydict(columns)


@given(st.lists(st.tuples(TOPICS, PARTITIONS), max_size=40))
def test_every_row_goes_to_its_place_in_its_order(
    places: list[tuple[str | None, int | None]],
) -> None:
    wanted: dict[object, list[bytes]] = {}
    for row, place in enumerate(places):
        wanted.setdefault(place, []).append(b"%d" % row)
    made = list(pieces(batch(places), None))
    found = {(each.topic, each.partition): each.rows.column("value").to_pylist() for each in made}
    assert len(found) == len(made)
    assert found == wanted


def test_a_row_without_a_topic_is_refused_unless_all_go_to_one() -> None:
    places: list[tuple[str | None, int | None]] = [("a", 0), (None, 0)]
    with pytest.raises(BadOption, match="has no topic"):
        list(pieces(batch(places), None))
    (only,) = pieces(batch(places), "b")
    assert (only.topic, only.partition, len(only.rows)) == ("b", 0, 2)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path, 1) as started:
        yield started


def encoder(
    cluster: FakeCluster, root: Path, text: str, registry: SchemaRegistry | None = None
) -> RowEncoder:
    Known(cluster, text)
    known = KnownSchemas(OsFileSystem(), str(root), load_client(cluster.client_file))
    return RowEncoder("t", known, registry)


ROWS = pa.table({"key": [b"k", None], "a": pa.array([1, 2], pa.int64()), "b": ["x", None]})
FIRST = schema_text("a int32", "b string")
MARK = dict(zip(("key", "value"), mark(1, parse_schema(FIRST).fingerprint), strict=True))


def test_rows_of_a_schema_are_records_with_marks(cluster: FakeCluster, tmp_path: Path) -> None:
    rows = encoder(cluster, tmp_path, FIRST)
    assert encoded(ROWS, rows, "t").to_pylist() == [
        {"key": b"k", "value": b'{"a":1,"b":"x"}', "headers": [MARK]},
        {"key": None, "value": b'{"a":2,"b":null}', "headers": [MARK]},
    ]
    own = [[{"key": "x", "value": b"y"}], None]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    found = encoded(ROWS.append_column("headers", pa.array(own, kind)), rows, "t")
    assert found["headers"].to_pylist() == [[{"key": "x", "value": b"y"}, MARK], [MARK]]
    with pytest.raises(RowMisfit, match="row 1, column 'a'"):
        encoded(pa.table({"a": [1, 2**40], "b": ["x", "y"]}), rows, "t")


def test_rows_with_a_registry_have_its_ids(cluster: FakeCluster, tmp_path: Path) -> None:
    with running() as registry:
        text = schema_text("a int32", "b string", value_format="avro")
        rows = encoder(cluster, tmp_path, text, SchemaRegistry(registry.url))
        found = encoded(ROWS, rows, "t")
    assert registry.subjects == {"t-value": 1}
    assert found.schema.names == ["key", "value"]
    assert [value[: HEAD.size] for value in found["value"].to_pylist()] == [HEAD.pack(0, 1)] * 2


def test_a_stream_of_rows_is_one_record(cluster: FakeCluster, tmp_path: Path) -> None:
    rows = encoder(cluster, tmp_path, schema_text("a int64", "b string", value_format="arrow"))
    assert len(encoded(ROWS.drop_columns(["key"]), rows, "t")) == 1
    with pytest.raises(BadOption, match="these have no key of their own"):
        encoded(ROWS, rows, "t")


def test_options_and_columns_of_rows() -> None:
    options = parse_sink_options({"topic": "t", "valueFormat": "schema", "registry": "http://x"})
    assert (options.is_typed, options.registry) == (True, "http://x")
    with pytest.raises(BadOption, match="what is written is schema"):
        parse_sink_options({"topic": "t", "valueFormat": "json"})
    with pytest.raises(BadOption, match="registry goes with"):
        parse_sink_options({"topic": "t", "registry": "http://x"})
    key, value = StructField("key", StringType()), StructField("value", StringType())
    row = StructField("a", LongType())
    check_columns(StructType([key, row]), "t", is_typed=True)
    with pytest.raises(BadOption, match="drop column value"):
        check_columns(StructType([value, row]), "t", is_typed=True)
    with pytest.raises(BadOption, match="has no column of the topic's schema"):
        check_columns(StructType([key]), "t", is_typed=True)
    with pytest.raises(BadOption, match="column key is bigint"):
        check_columns(StructType([StructField("key", LongType()), row]), "t", is_typed=True)
