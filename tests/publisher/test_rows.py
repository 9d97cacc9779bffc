"""Rows of a topic's schema as records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from samelog import AsyncPublisher, Publisher
from samelog.admin import known_schemas
from samelog.admin.answers import SchemaPage
from samelog.admin.client import topic_schemas
from samelog.admin.known_schemas import KnownSchemas
from samelog.format.errors import RecordTooLarge
from samelog.publisher import NobodyAnswers, NoSchema, RowMisfit
from samelog.store.disk.files import OsFileSystem
from samelog.typed.schema import parse_schema
from samelog.typed.values.codecs import codec_of
from samelog.typed.versions import mark
from tests.cli.fake_nodes import FakeCluster
from tests.publisher import reading
from tests.typed.known import Known, schema_text

FIRST, SECOND = schema_text("a int32", "b string"), schema_text("a int64", "b string", "c bool")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path, 1) as started:
        yield started


@pytest.fixture
def known(cluster: FakeCluster) -> Known:
    return Known(cluster, FIRST)


def publisher(cluster: FakeCluster, root: Path, **options: Any) -> Publisher:
    return Publisher(
        "t", session="s", directory=root, config=cluster.client_file, ship=False, **options
    )


def marked(root: Path, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    """Version and value of each record."""
    found = reading.records(root / "s", partition=partition)
    marks = [dict(record.headers)["samelog.schema"] or b"" for record in found]
    values = [record.value for record in found]
    return [(mark.partition(b"@")[0], value) for mark, value in zip(marks, values, strict=True)]


def test_rows_of_any_kind_are_records_with_their_version(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    with publisher(cluster, tmp_path) as typed:
        typed.append_rows([{"a": 1, "b": "x"}, {"a": 2}])
        typed.append_rows([(3, None)])
        typed.append_rows(pa.table({"b": ["y"], "a": pa.array([4], pa.int64())}))
        typed.append_rows(pd.DataFrame({"a": [5]}), key_column=None)
        typed.append_rows([])
    values = [b'{"a":1,"b":"x"}', b'{"a":2,"b":null}', b'{"a":3,"b":null}']
    values += [b'{"a":4,"b":"y"}', b'{"a":5,"b":null}']
    assert marked(tmp_path) == [(b"1", value) for value in values]
    assert known.asked == 1


def test_keys_and_times_are_columns_too(cluster: FakeCluster, known: Known, tmp_path: Path) -> None:
    known.texts[0] = schema_text("b string", "at timestamp[ms]")
    table = pa.table({"b": ["x", None], "at": pa.array([5, 6], pa.timestamp("ms"))})
    with publisher(cluster, tmp_path) as typed:
        typed.append_rows(table, key_column="b", timestamp_column="at")
    found = [(record.key, record.timestamp) for record in reading.records(tmp_path / "s")]
    assert found == [(b"x", 5), (None, 6)]


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        ([{"a": 1}, {"a": 2**40}], "row 1, column 'a': not int32: 1099511627776"),
        ([{"a": 1}, {"a": 1.5}], "row 1, column 'a': not int32: 1.5"),
        ([{"a": 1}, {"A": 1}], "row 1, column 'A': not a column of the schema"),
        (pa.table({"a": [1, 2**40]}), "row 1, column 'a': not int32"),
    ],
)
def test_one_row_that_does_not_fit_refuses_all(
    cluster: FakeCluster, known: Known, tmp_path: Path, rows: Any, where: str
) -> None:
    with publisher(cluster, tmp_path, partitions=4) as typed:
        with pytest.raises(RowMisfit, match=where):
            typed.append_rows(rows)
        assert typed.positions.appended == {}
        typed.append_rows([(7, "z")], partition=2)
    assert marked(tmp_path, 2) == [(b"1", b'{"a":7,"b":"z"}')]


def test_one_record_that_is_too_large_refuses_all_partitions(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    rows = [{"a": number, "b": f"{number}" * (1 + 900 * (number == 9))} for number in range(10)]
    with publisher(cluster, tmp_path, partitions=4, max_record_bytes=500) as typed:
        with pytest.raises(RecordTooLarge):
            typed.append_rows(rows, key_column="b")
        assert typed.positions.appended == {}


def test_a_deleted_topics_schema_is_forgotten(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    with publisher(cluster, tmp_path) as typed:
        typed.append_rows([(1, "x")])
        known.texts[0] = schema_text("b string")
        typed._forget_schema("t", "id-1")  # as the shipper does
        known.topic_id = "id-2"
        with pytest.raises(RowMisfit):
            typed.append_rows([(1, "x")])
        typed.append_rows([("y",)])
    assert marked(tmp_path) == [(b"1", b'{"a":1,"b":"x"}'), (b"1", b'{"b":"y"}')]


def test_a_deletion_that_is_learnt_while_the_cluster_is_asked_counts(
    cluster: FakeCluster, known: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread encodes; another one, the shipper's, learns that the topic was deleted."""
    asked = topic_schemas
    with publisher(cluster, tmp_path) as typed:

        def ask(*arguments: Any) -> SchemaPage:
            page = asked(*arguments)
            if page.topic_id == "id-1":
                typed._forget_schema("t", "id-1")
                known.topic_id, known.texts[0] = "id-2", schema_text("b string")
            return page

        monkeypatch.setattr(known_schemas, "topic_schemas", ask)
        with pytest.raises(RowMisfit):
            typed.append_rows([(1, "x")])
        typed.append_rows([("y",)])
    assert marked(tmp_path) == [(b"1", b'{"b":"y"}')]


def test_a_node_that_lags_does_not_bring_a_deleted_schema_back(
    cluster: FakeCluster, known: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with publisher(cluster, tmp_path) as typed:
        typed.append_rows([(1, "x")])
        typed._forget_schema("t", "id-1")
        monkeypatch.setattr(known_schemas, "LAG_S", 0.0)
        with pytest.raises(NobodyAnswers, match="does not know yet that topic 't' was deleted"):
            typed.append_rows([(1, "x")])
        known.topic_id, known.texts[0] = "id-2", schema_text("b string")
        typed.append_rows([("y",)])
    assert marked(tmp_path) == [(b"1", b'{"a":1,"b":"x"}'), (b"1", b'{"b":"y"}')]


def test_what_a_sidecar_forgets_its_publisher_forgets(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    with publisher(cluster, tmp_path) as typed:
        typed.append_rows([(1, "x")])
        KnownSchemas(OsFileSystem(), str(tmp_path / "s"), None).forget("t", "id-1")
        known.topic_id, known.texts[0] = "id-2", schema_text("b string")
        with pytest.raises(RowMisfit):
            typed.append_rows([(1, "x")])
        typed.append_rows([("y",)])
        KnownSchemas(OsFileSystem(), str(tmp_path / "s"), None).forget("t", "id-1")
        typed.append_rows([("z",)])  # what was forgotten is another topic's
    assert known.asked == 2


def test_a_publisher_stays_with_its_version_until_it_is_asked_for_another(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    with publisher(cluster, tmp_path) as typed:
        typed.append_rows([(1, "x")])
        known.texts.append(SECOND)
        typed.append_rows([(2, "x")])
        with pytest.raises(RowMisfit):
            typed.append_rows([(3, "x", True)])
        typed.append_rows([(3, "x", True)], version=2)
        typed.append_rows([(4, "x", False)])
        with pytest.raises(NoSchema, match="has no version 3: it has 1 to 2"):
            typed.append_rows([(5, "x", False)], version=3)
    assert [version for version, _ in marked(tmp_path)] == [b"1", b"1", b"2", b"2"]


def test_without_a_node_the_newest_version_that_was_heard_of_counts(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    with publisher(cluster, tmp_path) as typed:
        typed.append_rows([(1, "x")])
    known.texts.append(SECOND)
    cluster.stop(0)
    cluster._servers.clear()
    with publisher(cluster, tmp_path) as typed:
        typed.append_rows([(2, "x")])
        with pytest.raises(NobodyAnswers):
            typed.append_rows([(3, "x", True)], version=2)
        with pytest.raises(NobodyAnswers):
            typed.append_rows([(3, "x", True)], topic="other")
    (tmp_path / "s" / "schemas" / "t.json").write_bytes(b"damaged")
    with publisher(cluster, tmp_path) as typed, pytest.raises(NobodyAnswers):
        typed.append_rows([(4, "x")])
    assert [version for version, _ in marked(tmp_path)] == [b"1", b"1"]


def test_a_topic_without_a_schema_takes_no_rows(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    known.texts.clear()
    with publisher(cluster, tmp_path) as typed:
        with pytest.raises(NoSchema, match="topic 't' has no schema"):
            typed.append_rows([(1, "x")])
        with pytest.raises(NoSchema, match="no such topic"):
            typed.append_rows([(1, "x")], topic="other")
    local = Publisher("t", session="local", directory=tmp_path)
    with local, pytest.raises(NobodyAnswers, match="give a config"):
        local.append_rows([(1, "x")])


def test_an_arrow_value_has_many_rows_and_no_key(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    known.texts[0] = schema_text("a int32", value_format="arrow")
    rows = [(number,) for number in range(1500)]
    with publisher(cluster, tmp_path) as typed:
        typed.append_rows(rows)
        for wrong in ({"key_column": "a"}, {"timestamp_column": "a"}, {"first_id": 1}):
            with pytest.raises(ValueError, match="a record is an Arrow stream of many rows"):
                typed.append_rows(rows, **wrong)
    found = codec_of(parse_schema(known.texts[0])).decode([v for _, v in marked(tmp_path)])
    assert found.table["a"].to_pylist() == list(range(1500))
    assert len(marked(tmp_path)) == 2


def test_ids_count_rows(cluster: FakeCluster, known: Known, tmp_path: Path) -> None:
    with publisher(cluster, tmp_path, dedup_id="d") as typed:
        typed.append_rows([(1, "x"), (2, "y")], first_id=10)
        typed.append_rows([(3, "z")], ids=[15])
    assert len(marked(tmp_path)) == 3


def test_rows_are_appended_without_blocking_a_loop(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    async def main() -> None:
        config = cluster.client_file
        async with AsyncPublisher(
            "t", session="s", directory=tmp_path, config=config, ship=False
        ) as typed:
            await typed.append_rows([(1, "x")], key_column="b")

    asyncio.run(main())
    assert marked(tmp_path) == [(b"1", b'{"a":1,"b":"x"}')]


# --- schema.enforce ---------------------------------------------------------------------------


def checked(cluster: FakeCluster, root: Path, **options: Any) -> Publisher:
    """As if a node had said that the topic's records are checked."""
    made = publisher(cluster, root, **options)
    made._learned({}, frozenset({"t"}))
    return made


MARK_1, MARK_7 = [("samelog.schema", b"1")], [("samelog.schema", b"7")]


@pytest.mark.parametrize("linger_ms", [0, 60_000])
def test_a_record_that_does_not_fit_is_refused_with_all_that_came_with_it(
    cluster: FakeCluster, known: Known, tmp_path: Path, linger_ms: int
) -> None:
    fits = b'{"a":1,"b":"x"}'
    with checked(cluster, tmp_path, partitions=2, linger_ms=linger_ms) as typed:
        with pytest.raises(RowMisfit, match=r"row 0, column 'a': not int32: \{.a.:true"):
            typed.append(b'{"a":true}')
        with pytest.raises(RowMisfit, match="row 2, column 'c': not a column of the schema"):
            typed.append_many([fits, None, b'{"c":1}', b"x"], keys=[b"0", b"1", b"2", b"3"])
        with pytest.raises(RowMisfit, match="version 7"):
            typed.append(fits, headers=MARK_7)
        with pytest.raises(RowMisfit, match="another schema's digest"):
            typed.append(fits, headers=[mark(1, parse_schema(SECOND).fingerprint)])
        with pytest.raises(RowMisfit, match="row 1"):
            typed.append_many([fits, memoryview(b"[]")], headers=[MARK_1, None])
        assert typed.positions.appended == {}
        typed.append(fits, partition=0)
        typed.append(None, partition=0, key=b"gone")
        typed.append(b"anything", topic="other")
        typed.append_many([fits, bytearray(fits)], partition=0, headers=[MARK_1, None])
    assert [record.value for record in reading.records(tmp_path / "s")] == [fits, None, fits, fits]


def test_ids_and_columns_are_checked_too(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    with checked(cluster, tmp_path, dedup_id="d") as typed:
        with pytest.raises(RowMisfit):
            typed.append(b"x", id=1)
        with pytest.raises(RowMisfit, match="row 1"):
            typed.append_many([b'{"a":1}', b"x"], first_id=1)
        with pytest.raises(RowMisfit, match="row 1"):
            typed.append_arrow(pa.table({"value": [b'{"a":1}', b"x"]}), first_id=1)
        typed.append(b'{"a":1}', id=1)
    assert len(reading.records(tmp_path / "s")) == 1


def test_before_a_record_is_refused_it_is_asked_for_a_newer_version(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    with checked(cluster, tmp_path) as typed:
        typed.append(b'{"a":1}')
        assert known.asked == 1
        known.texts.append(SECOND)
        typed._checks._asked_at.clear()  # type: ignore[union-attr]
        typed.append(b'{"a":1,"b":null,"c":true}')
        assert known.asked == 2
        with pytest.raises(RowMisfit):
            typed.append(b'{"d":1}')
        assert known.asked == 2  # not again within a second


def test_without_a_schema_or_an_answer_nothing_is_refused(
    cluster: FakeCluster, known: Known, tmp_path: Path
) -> None:
    known.texts.clear()
    with checked(cluster, tmp_path) as typed:
        typed.append(b"anything")
        typed._learned({}, frozenset({"t", "unknown"}))
        typed.append(b"anything", topic="unknown")
        typed._learned({}, frozenset())
        known.texts.append(FIRST)
        typed.append(b"anything")
    assert len(reading.records(tmp_path / "s")) == 2
