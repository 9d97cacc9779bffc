"""The source inside Spark: sessions, checkpoints, and failures of the sink.

What needs no session is tested in test_batch and test_stream: each query here takes seconds.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from shiplog.spark.columns import kafka_schema
from shiplog.spark.lag import Lag, LagListener
from tests.spark.queries import Injected, Query
from tests.subscriber.merged import Growing, numbers, wait_for

pytestmark = pytest.mark.timeout(400)  # the first one also starts the session


def test_columns_and_records_are_those_of_the_kafka_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Growing(tmp_path)
    log.append(b"one", b"two", timestamp=[1_700_000_000_123, 1_700_000_000_124])
    reader = spark.read.format("shiplog").option("directory", str(tmp_path))
    frame = reader.option("subscribe", "t").option("includeHeaders", "true").load()
    assert frame.schema == kafka_schema(include_headers=True)
    milliseconds = "CAST(CAST(timestamp AS DOUBLE) * 1000 AS LONG) AS ms"
    rows = frame.orderBy("offset").selectExpr("*", milliseconds).collect()
    assert [(r.key, bytes(r.value), r.topic, r.partition, r.offset, r.headers) for r in rows] == [
        (None, b"one", "t", 0, 0, []),
        (None, b"two", "t", 0, 1, []),
    ]
    assert [(r.timestampType, r.ms) for r in rows] == [(0, 1700000000123), (0, 1700000000124)]


def test_an_error_reaches_the_user_with_its_text(spark: SparkSession, tmp_path: Path) -> None:
    Growing(tmp_path)
    reader = spark.read.format("shiplog").option("directory", str(tmp_path))
    with pytest.raises(Exception, match="UnknownTopic: there is no topic no-such: check the name"):
        reader.option("subscribe", "no-such").load().count()


def test_failures_of_the_sink_lose_and_repeat_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """In batch 0, and in the middle; the log grows in between, and the start is a moving latest."""
    log = Growing(tmp_path)
    log.count(0, 10)
    lags: list[Lag] = []
    spark.streams.addListener(LagListener(lags.append))
    query = Query(
        spark, tmp_path / "checkpoint", directory=tmp_path, subscribe="t", maxOffsetsPerTrigger=40
    )
    with pytest.raises(Exception, match=Injected.__name__):
        query.run(fail_in=lambda batch: batch == 0)
    log.count(10, 110)
    with pytest.raises(Exception, match=Injected.__name__):
        query.run(fail_in=lambda batch: batch == 2)
    log.count(110, 120)
    query.run()
    assert [row[2] for row in query.records] == numbers(10, 120)
    assert query.sizes == [40, 40, 40, 30]
    wait_for(lambda: {lag.total for lag in lags} >= {60, 0}, "what Spark reports")
