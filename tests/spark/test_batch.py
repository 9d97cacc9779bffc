"""Batch queries over local copies, planned and read as Spark does it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType
from pyspark.sql.worker import lookup_data_sources

from samelog.spark.errors import BadOption, DataLoss, NotReadable, SourceError, TopicNotFound
from samelog.spark.payload.payload import ROWS, Shape, kafka_schema
from tests.spark.local import archive, batch_reader, rows, values
from tests.subscriber.merged import Growing, numbers


def read(directory: Path, **options: object) -> list[dict[str, Any]]:
    """The rows of a batch query."""
    selections = {"assign", "subscribe", "subscribePattern"}
    chosen = options if selections & options.keys() else {"subscribe": "t", **options}
    reader = batch_reader(directory=directory, **chosen)
    return rows(reader, reader.partitions())


def made(directory: Path) -> Path:
    """The directory, which is there now."""
    directory.mkdir()
    return directory


def tasks(directory: Path, **options: object) -> list[int]:
    """How many offsets each task of a query has."""
    reader = batch_reader(directory=directory, subscribe="t", **options)
    return [sum(each.size for each in task.task) for task in reader.partitions()]


def test_offsets_partitions_and_segments(tmp_path: Path) -> None:
    for partition in range(3):
        log = Growing(tmp_path, partition=partition)
        log.count(0, 50)
        log.roll()
        log.count(50, 80)
    assert values(read(tmp_path)) == numbers(0, 80) * 3
    some = read(
        tmp_path,
        startingOffsets='{"t": {"0": 10, "1": -2, "2": 79}}',
        endingOffsets='{"t": {"0": 60, "1": 1, "2": -1}}',
        minPartitions=4,
    )
    assert values(some) == numbers(10, 60) + numbers(0, 1) + numbers(79, 80)


def test_small_partitions_share_tasks_and_large_ones_are_cut(tmp_path: Path) -> None:
    for partition in range(6):
        Growing(tmp_path, partition=partition).count(0, 10)
    assert tasks(tmp_path) == [60]
    assert tasks(tmp_path, minRecordsPerTask=30) == [30, 30]
    assert tasks(tmp_path, maxRecordsPerPartition=5) == [5] * 12
    assert tasks(tmp_path, minPartitions=7) == [5] * 12
    assert len(tasks(tmp_path, minPartitions=1000)) == 60
    assert values(read(tmp_path, maxRecordsPerPartition=3)) == numbers(0, 10) * 6


def test_times(tmp_path: Path) -> None:
    log = Growing(tmp_path)
    log.append(*numbers(0, 10), timestamp=list(range(1000, 1010)), batch_bytes=100)
    assert values(read(tmp_path, startingTimestamp=1003, endingTimestamp=1007)) == numbers(3, 7)
    each = read(tmp_path, startingOffsetsByTimestamp='{"t": {"0": 1009}}')
    assert values(each) == numbers(9, 10)
    with pytest.raises(SourceError, match="t-0 has no record at 5000 ms or later, its end is 10"):
        read(tmp_path, startingTimestamp=5000)
    late = {"startingTimestamp": 5000, "startingOffsetsByTimestampStrategy": "latest"}
    assert read(tmp_path, **late) == []


def test_patterns_and_assignments(tmp_path: Path) -> None:
    Growing(tmp_path, "orders", topic_id="id-2").count(0, 3)
    Growing(tmp_path, "orders-eu", topic_id="id-3").count(0, 2)
    Growing(tmp_path, "orders", 1, topic_id="id-2").count(0, 4)
    Growing(tmp_path, "other", topic_id="id-4").count(0, 9)
    assert len(read(tmp_path, subscribe="orders, other")) == 16
    assert len(read(tmp_path, subscribePattern="orders.*")) == 9
    assert len(read(tmp_path, assign='{"orders": [1]}')) == 4
    with_headers = read(tmp_path, subscribe="other", includeHeaders=True)
    assert [row["headers"] for row in with_headers] == [[]] * 9


def test_times_that_spark_cannot_have_do_no_harm(tmp_path: Path) -> None:
    log = Growing(tmp_path)
    log.append(b"wild", b"tame", timestamp=[2**63 - 1, 5])
    schema = StructType(kafka_schema(include_headers=False).fields[1:2])
    reader = batch_reader(schema=schema, directory=tmp_path, subscribe="t")
    assert values(rows(reader, reader.partitions())) == [b"wild", b"tame"]
    full = batch_reader(directory=tmp_path, subscribe="t")
    batches = [batch for task in full.partitions() for batch in full.read(task)]
    assert batches[0]["timestamp"].cast("int64").to_pylist()[1] == 5000


def test_large_chunks_are_handed_over_in_batches(tmp_path: Path) -> None:
    Growing(tmp_path).append(*[b"x"] * (2 * ROWS + 1))
    reader = batch_reader(directory=tmp_path, subscribe="t")
    [task] = reader.partitions()
    sizes = [batch.num_rows for batch in reader.read(task)]
    assert sum(sizes) == 2 * ROWS + 1
    assert max(sizes) <= ROWS


def test_nothing_to_read(tmp_path: Path) -> None:
    log = Growing(tmp_path)
    assert read(tmp_path) == []
    log.count(0, 5)
    assert read(tmp_path, startingOffsets="latest") == []


def test_a_nodes_data_directory_will_do(tmp_path: Path) -> None:
    Growing(made(tmp_path / "merged")).count(0, 5)
    assert values(read(tmp_path)) == numbers(0, 5)


def test_the_environment_names_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Growing(tmp_path).count(0, 5)
    reader = batch_reader(subscribe="t")
    with pytest.raises(BadOption, match="needs the option config, a client"):
        reader.partitions()
    monkeypatch.setenv("SAMELOG_DIRECTORY", str(tmp_path))
    assert values(rows(reader, reader.partitions())) == numbers(0, 5)


# --- what Spark takes ------------------------------------------------------------------------


def test_the_schema_is_the_one_that_spark_takes_exactly() -> None:
    shape = Shape(kafka_schema(include_headers=True)).schema
    assert [(field.name, str(field.type), field.nullable) for field in shape] == [
        ("key", "binary", True),
        ("value", "binary", True),
        ("topic", "string", True),
        ("partition", "int32", True),
        ("offset", "int64", True),
        ("timestamp", "timestamp[us, tz=UTC]", True),
        ("timestampType", "int32", True),
        ("headers", "list<element: struct<key: string, value: binary>>", True),
    ]


def test_a_query_may_ask_for_some_columns(tmp_path: Path) -> None:
    Growing(tmp_path).count(0, 3)
    schema = StructType([StructField("offset", LongType())])
    reader = batch_reader(schema=schema, directory=tmp_path, subscribe="t")
    assert rows(reader, reader.partitions()) == [{"offset": 0}, {"offset": 1}, {"offset": 2}]


def test_an_option_may_name_the_columns(tmp_path: Path) -> None:
    Growing(tmp_path).count(0, 2)
    found = read(tmp_path, columns="offset, value")
    assert [list(row) for row in found] == [["offset", "value"]] * 2
    with pytest.raises(BadOption, match="columns: there is no nothing; found: key, value"):
        read(tmp_path, columns="offset,nothing")


def test_a_wrong_schema_is_refused(tmp_path: Path) -> None:
    wrong = StructType([StructField("offset", StringType())])
    with pytest.raises(BadOption, match="column offset is wanted as string, but is bigint"):
        batch_reader(schema=wrong, directory=tmp_path, subscribe="t")
    unknown = StructType([StructField("nothing", StringType())])
    with pytest.raises(BadOption, match="there is no column nothing; found: key, value"):
        batch_reader(schema=unknown, directory=tmp_path, subscribe="t")


# --- what goes wrong -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "options", "said"),
    [
        (TopicNotFound, {"subscribe": "no-such"}, "there is no topic no-such"),
        (TopicNotFound, {"subscribe": "t,no-such"}, "there is no topic no-such"),
        (TopicNotFound, {"subscribePattern": "x.*"}, "no topic matches 'x"),
        (TopicNotFound, {"assign": '{"t": [0, 7]}'}, "topic t has no partition 7; it has 0"),
        (BadOption, {"startingOffsets": '{"t": {"0": 99}}'}, r"t-0 has offset 99, but holds \[0, "),
        (BadOption, {"startingOffsets": '{"t": {"1": 1}}'}, "says nothing of t-0 and names t-1"),
        (
            BadOption,
            {"startingOffsets": '{"t": {"0": 9}}', "endingOffsets": '{"t": {"0": 3}}'},
            "startingOffsets lies behind endingOffsets: t-0: 9 to 3",
        ),
    ],
)
def test_what_does_not_fit_the_logs_says_so(
    tmp_path: Path, error: type[Exception], options: dict[str, str], said: str
) -> None:
    Growing(tmp_path).count(0, 10)
    selections = {"assign", "subscribe", "subscribePattern"}
    chosen = options if selections & options.keys() else {"subscribe": "t", **options}
    with pytest.raises(error, match=said):
        batch_reader(directory=tmp_path, **chosen).partitions()


def test_a_copy_that_an_executor_does_not_see(tmp_path: Path) -> None:
    Growing(made(tmp_path / "driver")).count(0, 10)
    planned = batch_reader(directory=tmp_path / "driver", subscribe="t").partitions()
    executor = batch_reader(directory=tmp_path / "executor", subscribe="t", readMode="local")
    said = r"t-0 \[0, 10\): there is no copy at .*/executor/t-0 on host .*: name a place that this"
    with pytest.raises(NotReadable, match=said):
        rows(executor, planned)


def test_spark_finds_no_source_beside_a_broken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark runs to find sources; docs/spark.md has the remedy."""
    monkeypatch.syspath_prepend(tmp_path)
    found = io.BytesIO()
    lookup_data_sources._main(io.BytesIO(), found)
    assert b"samelog" in found.getvalue()
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('injected')\n")
    with pytest.raises(RuntimeError, match="injected"):
        lookup_data_sources._main(io.BytesIO(), io.BytesIO())


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere"):
        batch_reader(directory=tmp_path / "nowhere", subscribePattern=".*").partitions()


def test_a_copy_that_lags_behind_is_waited_for_then_refused(tmp_path: Path) -> None:
    """The task was planned from a copy that had come further than the one on the executor."""
    Growing(made(tmp_path / "driver")).count(0, 10)
    executor = Growing(made(tmp_path / "executor"))
    executor.count(0, 4)
    [task] = batch_reader(directory=tmp_path / "driver", subscribe="t").partitions()
    reader = batch_reader(directory=tmp_path / "executor", subscribe="t", localWaitMs=50)
    with pytest.raises(NotReadable, match=r"t-0 \[0, 10\): the copy at .* ends at 4"):
        rows(reader, [task])
    executor.count(4, 12)
    assert values(rows(reader, [task])) == numbers(0, 10)


def test_a_copy_of_another_topic_of_the_same_name_is_refused(tmp_path: Path) -> None:
    Growing(made(tmp_path / "driver")).count(0, 10)
    Growing(made(tmp_path / "executor"), topic_id="id-2").count(0, 10)
    [task] = batch_reader(directory=tmp_path / "driver", subscribe="t").partitions()
    reader = batch_reader(directory=tmp_path / "executor", subscribe="t")
    with pytest.raises(NotReadable, match=r"wanted is the topic with id id-1, .* id id-2"):
        rows(reader, [task])


def archived_between_plan_and_read(tmp_path: Path, **options: object) -> list[bytes]:
    """The values that are read when the first segment of two vanishes after planning."""
    log = Growing(tmp_path)
    log.count(0, 5)
    log.roll()
    log.count(5, 10)
    reader = batch_reader(directory=tmp_path, subscribe="t", **options)
    planned = reader.partitions()
    archive(log, 5)
    return values(rows(reader, planned))


def test_archiving_overtakes_a_task(tmp_path: Path) -> None:
    said = r"t-0: wanted are \[0, 10\), but the first offset there is is 5: .*failOnDataLoss"
    with pytest.raises(DataLoss, match=said):
        archived_between_plan_and_read(tmp_path)


def test_archiving_overtakes_a_task_that_may_go_on(tmp_path: Path) -> None:
    assert archived_between_plan_and_read(tmp_path, failOnDataLoss=False) == numbers(5, 10)


def test_damage_is_no_end_of_the_log(tmp_path: Path) -> None:
    log = Growing(tmp_path)
    log.count(0, 40)
    log.make_durable()
    reader = batch_reader(directory=tmp_path, subscribe="t")
    planned = reader.partitions()
    path = log.segment(0)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(NotReadable, match="t-0"):
        rows(reader, planned)
