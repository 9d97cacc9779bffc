"""The pipeline `lake`: merged logs into a table of partitioned Parquet files, every record once.

Spark repeats a micro-batch whose end it did not see. Its files are written first; the commit that
adds them to the table has the batch's number, and one that the table has is dropped. So readers see
whole batches, each once, whatever fails.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions

from samelog.format.names import check_session_name
from samelog.spark.errors import LakeError
from samelog.spark.pipelines.delta_log import LakeCommit
from samelog.spark.pipelines.lake_table import LakeTable
from samelog.spark.pipelines.running import triggered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
PARTITION_BY = ("topic", "date")
_CHECKPOINT = "_checkpoint"
_DERIVED = {"date": "to_date(`{}timestamp`)", "hour": "hour(`{}timestamp`)"}
"""Columns that are made of the record's timestamp where partitions need them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """A lake: where it is, and what goes into it.

    Args:
        path: a URL of Hadoop's file systems, or a path of the default one.
        source: options of the source `samelog`.
        partition_by: columns; `date` and `hour` are made of the record's timestamp.
        name: of the query that fills it; several with names of their own may fill one lake.
    """

    path: str
    source: Mapping[str, str]
    partition_by: tuple[str, ...] = PARTITION_BY
    name: str = "lake"

    def shaped(self, frame: DataFrame) -> DataFrame:
        """Records of the source with the partition columns."""
        prefix = self.source.get("metadataPrefix", "")
        for name in self.partition_by:
            made = _DERIVED.get(name)
            if made is not None and name not in frame.columns:
                frame = frame.withColumn(name, functions.expr(made.format(prefix)))
        return frame

    def checkpoint(self, name: str) -> str:
        """Where a query that fills the lake notes how far it is, unless it was given another."""
        return checkpoint_below(self.path, name)

    def table(self, spark: SparkSession) -> LakeTable:
        """The table."""
        return LakeTable(spark, self.path, self.partition_by)


def checkpoint_below(path: str, name: str) -> str:
    """Where the query `name` that fills the lake at `path` notes how far it is, by default."""
    return f"{path.rstrip('/')}/{_CHECKPOINT}/{name}"


def query_of(frame: DataFrame, name: str) -> str:
    """Which query a micro-batch is of: its name, and Spark's id, which its checkpoint keeps."""
    return f"{name}:{frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)}"


def start(
    spark: SparkSession, lake: Lake, *, trigger: str, checkpoint: str | None = None
) -> StreamingQuery:
    """Start the query that fills a lake. Raises InvalidName, SourceError."""
    check_session_name(lake.name)
    has_start = any(name.lower().startswith("starting") for name in lake.source)
    source = {**({} if has_start else {"startingOffsets": "earliest"}), **lake.source}
    frame = lake.shaped(spark.readStream.format("samelog").options(**source).load())
    writer = frame.writeStream.queryName(lake.name).foreachBatch(
        LakeWriter(spark, lake).write_batch
    )
    place = checkpoint or lake.checkpoint(lake.name)
    return triggered(writer.option("checkpointLocation", place), trigger).start()


class LakeWriter:
    """Writes the micro-batches of one query, on the driver."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._name = lake.name
        self._table = lake.table(spark)

    def write_batch(self, frame: DataFrame, batch: int) -> None:
        """Add a micro-batch to the lake, once. Raises LakeError."""
        who = query_of(frame, self._name)
        known = self._table.snapshot().batches
        self._refuse_another(known, who)
        if known.get(who, -1) >= batch:
            log.warning("batch %d of %s is in %s already: dropped", batch, who, self._table.path)
            return
        commit = LakeCommit(operation="STREAMING UPDATE", batch=(who, batch))
        self._table.append(frame, f"{self._name}-{batch}", commit)

    def _refuse_another(self, known: Mapping[str, int], who: str) -> None:
        """Raises LakeError for a query that started over and would add its rows twice."""
        others = [each for each in known if each.startswith(f"{self._name}:") and each != who]
        if others and who not in known:
            raise LakeError(
                f"{self._table.path} is filled by another query with the name {self._name} (was "
                "its checkpoint deleted?), and what this one reads may be there already: bring "
                "the checkpoint back, take another path, or another name to add rows on purpose"
            )
