"""A driver that tests kill, with executors in processes of their own, which know only the nodes.

python -m tests.spark.driver CLIENT.TOML TOPIC OUTPUT CHECKPOINT
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.conftest import start_session


def copy(spark: SparkSession, config: str, topic: str, *, output: str, at: str) -> StreamingQuery:
    """Start to copy a topic to JSON files, few records at a time, until it is stopped."""
    told = {"config": config, "readMode": "remote", "subscribe": topic}
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "50", "minPartitions": "2"}
    source = spark.readStream.format("samelog").options(**told, **limits).load()
    columns = source.selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
    return columns.writeStream.format("json").option("checkpointLocation", at).start(output)


if __name__ == "__main__":
    session = start_session("local-cluster[2,1,1024]", **{"spark.executor.memory": "512m"})
    copy(session, *sys.argv[1:3], output=sys.argv[3], at=sys.argv[4]).awaitTermination()
