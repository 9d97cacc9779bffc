"""What PySpark 4.1 can do with the source: read and write batches. Streams are refused, in words.

A process of its own, with the config of a cluster that has records in the topic `t`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import start_session

T = TypeVar("T")
REFUSED = "to read a stream takes Spark 4.2 or newer"
BUSY = "Python worker failed to connect back"
"""Spark gives its Python processes 10 s to begin: on a busy machine that may be too little."""


def main(config: str, sink: str) -> None:
    """Copy the topic, and read the copy."""
    spark = start_session("local[1]")
    values = rows(spark, config, "t")
    assert values
    patiently(lambda: copy(spark, config, sink))
    assert rows(spark, config, sink) == values
    said = patiently(lambda: refusal(spark, config))
    assert REFUSED in said, said
    spark.stop()


def patiently(work: Callable[[], T]) -> T:
    """What comes of it once Python processes begin in time. One that has not begun did nothing,
    and a write that fails is dropped as a whole.
    """
    while True:
        try:
            return work()
        except PySparkException as error:
            if BUSY not in str(error):
                raise


def rows(spark: SparkSession, config: str, topic: str) -> list[bytes]:
    """All values of a topic, in some order."""
    return patiently(
        lambda: sorted(bytes(row.value) for row in frame(spark, config, topic).collect())
    )


def frame(spark: SparkSession, config: str, topic: str) -> DataFrame:
    """A topic's values."""
    read = spark.read.format("samelog").option("config", config).option("subscribe", topic)
    return read.load().select("value")


def copy(spark: SparkSession, config: str, sink: str) -> None:
    """The topic into another one."""
    written = frame(spark, config, "t").write.format("samelog").mode("append")
    written.option("config", config).option("topic", sink).save()


def refusal(spark: SparkSession, config: str) -> str:
    """What a streaming query says. Raises PySparkException if no Python process began in time."""
    source = spark.readStream.format("samelog").option("config", config).option("subscribe", "t")
    try:
        query = source.load().writeStream.format("noop").trigger(once=True).start()
        query.awaitTermination()
    except PySparkException as error:
        if BUSY in str(error):
            raise
        return str(error)
    return "nothing"


if __name__ == "__main__":
    main(*sys.argv[1:])
