"""A driver of its own that copies a topic into another, in small batches, until it is killed."""

from __future__ import annotations

import sys

from tests.spark.conftest import start_session

TIMEOUT_S = 120


def main(config: str, topic: str, target: str, checkpoint: str) -> None:
    """Copy all there is."""
    spark = start_session("local[2]")
    reader = spark.readStream.format("samelog").option("config", config)
    frame = reader.options(
        subscribe=topic, readMode="remote", startingOffsets="earliest", maxOffsetsPerTrigger=12
    ).load()
    writer = frame.select("key", "value").writeStream.format("samelog").option("config", config)
    writer = writer.options(topic=target, checkpointLocation=checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination(TIMEOUT_S)


if __name__ == "__main__":
    main(*sys.argv[1:5])
