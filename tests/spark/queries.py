"""Streaming queries that tests run: what came in which batch, and failures on demand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

TIMEOUT_S = 60


class Injected(Exception):
    """A failure that a test wants."""


class Query:
    """One streaming query with its checkpoint, run again and again."""

    def __init__(self, spark: SparkSession, checkpoint: Path, **options: object) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.options = {name: str(value) for name, value in options.items()}
        self.batches: list[tuple[int, list[tuple[Any, ...]]]] = []
        """(batch id, sorted (partition, offset, value) of its records) of each call of the sink."""

    def source(self) -> DataFrame:
        """The stream."""
        return self.spark.readStream.format("samelog").options(**self.options).load()

    def run(self, *, fail_in: Callable[[int], bool] = lambda batch: False) -> None:
        """Read all there is now. With `fail_in`, the sink fails after it has taken such a batch."""

        def take(frame: DataFrame, batch: int) -> None:
            rows = frame.select("partition", "offset", "value").collect()
            self.batches.append((batch, sorted((p, o, bytes(v)) for p, o, v in rows)))
            if fail_in(batch):
                raise Injected(f"in batch {batch}")

        writer = self.source().writeStream.foreachBatch(take).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        try:
            assert query.awaitTermination(TIMEOUT_S)
        finally:
            query.stop()

    @property
    def records(self) -> list[tuple[Any, ...]]:
        """What a sink has that drops a batch it has seen: the last content of each batch."""
        last = dict(self.batches)
        return [row for batch in sorted(last) for row in last[batch]]

    @property
    def sizes(self) -> list[int]:
        """Rows of the batches that had any, in order of the calls."""
        return [len(rows) for _, rows in self.batches if rows]
