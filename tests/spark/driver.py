"""A driver that tests kill: copies a topic to JSON files, few records at a time.

python -m tests.spark.driver DIRECTORY OUTPUT CHECKPOINT
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.conftest import start_session


def copy(spark: SparkSession, directory: str, output: str, checkpoint: str) -> StreamingQuery:
    """Start the query, which goes on until it is stopped."""
    told = {"directory": directory, "subscribe": "t", "startingOffsets": "earliest"}
    source = spark.readStream.format("shiplog").options(**told, maxOffsetsPerTrigger="50").load()
    columns = source.selectExpr("offset", "CAST(value AS STRING) AS value")
    writer = columns.writeStream.format("json").option("checkpointLocation", checkpoint)
    return writer.start(output)


if __name__ == "__main__":
    copy(start_session("local[2]"), *sys.argv[1:]).awaitTermination()
