"""Publishes archived records again, to a topic of a live cluster, exactly once.

A streaming query from the archive to the sink, which ends where the range does: Spark's checkpoint
says how far it is, and the cluster drops a batch that comes again. Invariant: records of a
partition go to the partition with the same number, in their order, with key, headers and timestamp.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samelog.admin.client import ask
from samelog.admin.requests import DescribeTopic
from samelog.config.load import load_client
from samelog.format.nouns import counted
from samelog.spark.errors import BadOption, SourceError, TopicNotFound
from samelog.spark.logs.archived_logs import ArchivedLogs
from samelog.spark.options import Archive
from samelog.spark.plan.offsets import PartitionName, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_BYTES = 256 << 20
"""Of the log in one micro-batch, about: nodes keep so much until it is published."""
COLUMNS = ("key", "value", "partition", "timestamp", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepublishRange:
    """Which records: of one partition or all, from an offset or a time (ms) on, up to another one,
    without it. Offsets need a partition.
    """

    topic: str
    partition: int | None = None
    first: int | None = None
    behind: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def options(self) -> dict[str, str]:
        """As the source takes them. Raises BadOption."""
        told = {"startingOffsetsByTimestampStrategy": "latest"}
        if self.partition is None:
            if self.first is not None or self.behind is not None:
                raise BadOption("offsets are those of one partition: say which")
            told["subscribe"] = self.topic
        else:
            told["assign"] = json.dumps({self.topic: [self.partition]})
        return {
            **told,
            **self._place("starting", "earliest", self.first, self.from_ms),
            **self._place("ending", "latest", self.behind, self.to_ms),
        }

    def _place(
        self, side: str, default: str, offset: int | None, time_ms: int | None
    ) -> dict[str, str]:
        if offset is not None and time_ms is not None:
            raise BadOption(f"{side} at an offset and at a time contradict each other: give one")
        if time_ms is not None:
            return {f"{side}Timestamp": str(time_ms)}
        if offset is None:
            return {f"{side}Offsets": default}
        return {f"{side}Offsets": json.dumps({self.topic: {str(self.partition): offset}})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Republishing:
    """From where to where. `checkpoint`: a directory that Spark keeps; run again with the same one,
    the job goes on.
    """

    archive: Archive
    wanted: RepublishRange
    config: str
    target: str
    checkpoint: str
    batch_bytes: int = BATCH_BYTES


def republish(spark: SparkSession, job: Republishing) -> Mapping[PartitionName, int]:
    """Publish all of it: where each partition of the archive was read to.

    Raises:
        BadOption: the range or the target cannot be used.
        SourceError, AdminError: the archive or the cluster cannot be read.
        StreamingQueryException: the query has failed; run again, it goes on.
    """
    _check_target(job)
    told = {**job.wanted.options(), **_archive(job.archive), "includeHeaders": "true"}
    told["maxBytesPerTrigger"] = str(job.batch_bytes)
    frame = spark.readStream.format("samelog").options(**told).load().select(*COLUMNS)
    writer = frame.writeStream.format("samelog").option("config", job.config)
    writer = writer.option("topic", job.target).option("checkpointLocation", job.checkpoint)
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
        return _read_to(query)
    finally:
        query.stop()


def _archive(archive: Archive) -> dict[str, str]:
    told = {"archive": archive.url, "archiveCluster": archive.cluster, "archiveLog": archive.log}
    return {name: text for name, text in told.items() if text is not None}


def _check_target(job: Republishing) -> None:
    """The target must have every partition that the archive has. Raises BadOption."""
    wanted = job.wanted
    with closing(ArchivedLogs(job.archive)) as logs:
        found = logs.topic_states([wanted.topic]).get(wanted.topic)
    if found is None:
        raise TopicNotFound(f"the archive {job.archive.url} has no copy of {wanted.topic}")
    last = max(found.partitions) if wanted.partition is None else wanted.partition
    described = ask(load_client(job.config), DescribeTopic(job.target))
    count = len(described.partitions)
    if last >= count:
        raise BadOption(
            f"{job.target} has {counted(count, 'partition')}, {wanted.topic} has copies of "
            f"partition {last}: records keep their partition; give the target as many"
        )


def _read_to(query: StreamingQuery) -> Mapping[PartitionName, int]:
    progress = query.lastProgress
    text = None if progress is None else progress["sources"][0]["endOffset"]
    if text is None:
        raise SourceError("Spark does not say how far the query came")
    end = parse(text if isinstance(text, dict) else json.loads(text))
    return {} if end is None else end.to
