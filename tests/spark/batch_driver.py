"""What PySpark 4.1 can do with the source: read and write batches. Streams are refused, in words.

A process of its own, with the config of a cluster that has records in the topic `t`.
"""

from __future__ import annotations

import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.conftest import start_session

REFUSED = "to read a stream takes Spark 4.2 or newer"
BUSY = "Python worker failed to connect back"
"""Spark gives its Python processes 10 s to begin: on a busy machine that may be too little."""


def main(config: str, sink: str) -> None:
    """Copy the topic, and read the copy."""
    spark = start_session("local[1]")
    values = rows(spark, config, "t")
    assert values
    frame = spark.read.format("samelog").option("config", config).option("subscribe", "t").load()
    written = frame.select("value").write.format("samelog").mode("append")
    written.option("config", config).option("topic", sink).save()
    assert rows(spark, config, sink) == values
    while BUSY in (said := refusal(spark, config)):
        pass
    assert REFUSED in said, said
    spark.stop()


def rows(spark: SparkSession, config: str, topic: str) -> list[bytes]:
    """All values of a topic, in some order."""
    frame = spark.read.format("samelog").option("config", config).option("subscribe", topic).load()
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def refusal(spark: SparkSession, config: str) -> str:
    """What a streaming query says."""
    source = spark.readStream.format("samelog").option("config", config).option("subscribe", "t")
    try:
        query = source.load().writeStream.format("noop").trigger(once=True).start()
        query.awaitTermination()
    except PySparkException as error:
        return str(error)
    return "nothing"


if __name__ == "__main__":
    main(*sys.argv[1:])
