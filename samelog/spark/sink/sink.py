"""Writes the rows of a query as records: each micro-batch, or each batch query, once and whole.

Tasks stage what they have (samelog.publisher.staging): a majority of the nodes holds it, and nobody
reads it. The driver's commit publishes what all tasks staged by one decision of the cluster, keyed
by the sink and Spark's batch id: a batch that Spark repeats, after whatever failure, is dropped.

Spark makes these objects on the driver (twice for each micro-batch) and pickles them to the tasks.
Invariant: making one costs nothing, and it keeps no state.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from samelog.admin.requests import StagedRun
from samelog.publisher.staging import StagedWriter, drop_stage, publish_stage
from samelog.spark.errors import BadOption, TopicNotFound
from samelog.spark.logs.access import config_path, shared_nodes
from samelog.spark.logs.remote_logs import RemoteLogs
from samelog.spark.options import LogAccess, ReadMode
from samelog.spark.sink.rows import pieces

if TYPE_CHECKING:
    import pyarrow as pa

    from samelog.config.tables.client import ClientConfig
    from samelog.spark.logs.nodes import Nodes
    from samelog.spark.sink.options import SinkOptions

log = logging.getLogger(__name__)

BATCH_QUERY = 0
"""The batch id of what a batch query writes; it has a name of its own."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task has staged."""

    stage: str
    writer: str
    runs: tuple[StagedRun, ...]
    rows: int


class TaskWriters:
    """One task's staged writers, one for each topic. A context manager."""

    def __init__(self, nodes: Nodes, stage: str) -> None:
        self._nodes = nodes
        self._logs = RemoteLogs(nodes)
        self._stage = stage
        self._writers: dict[str, StagedWriter] = {}
        self._counts: dict[str, int] = {}
        self._stack = ExitStack()
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def add(self, batch: pa.RecordBatch, topic: str | None) -> None:
        """Stage a batch of rows. Raises SourceError, PublisherError."""
        for piece in pieces(batch, topic):
            writer = self._writer(piece.topic)
            count = self._counts[piece.topic]
            if piece.partition is not None and not 0 <= piece.partition < count:
                raise BadOption(
                    f"a row is for {piece.topic}-{piece.partition}, but {piece.topic} has the "
                    f"partitions 0 to {count - 1}: mend the column partition, or drop it"
                )
            writer.publisher.append_arrow(piece.rows, partition=piece.partition)
        self.rows += len(batch)

    def _writer(self, topic: str) -> StagedWriter:
        found = self._writers.get(topic)
        if found is None:
            made = StagedWriter(
                topic,
                stage=self._stage,
                config=self._nodes.config,
                partitions=self._counts.setdefault(topic, self._partitions(topic)),
            )
            found = self._writers[topic] = self._stack.enter_context(made)
        return found

    def _partitions(self, topic: str) -> int:
        state = self._logs.topic_states([topic]).get(topic)
        if state is None:
            raise TopicNotFound(f"there is no topic {topic!r}: samelog topic create {topic}")
        return len(state.partitions)

    def hold(self) -> tuple[StagedRun, ...]:
        """Wait until all of it is safe. Raises NotStaged."""
        held = (writer.hold() for writer in self._writers.values())
        return tuple(run for run in held if run is not None)


def _nodes(options: SinkOptions) -> Nodes:
    access = LogAccess(mode=ReadMode.REMOTE, config=options.config)
    path = config_path(access)
    if path is None:
        raise BadOption("a query that writes needs the option config, a client.toml")
    return shared_nodes(path, access)


def _config(options: SinkOptions) -> ClientConfig:
    return _nodes(options).config


def _stage(
    options: SinkOptions, stage: str, writer: str, batches: Iterator[pa.RecordBatch]
) -> Staged:
    with TaskWriters(_nodes(options), stage) as writers:
        for batch in batches:
            writers.add(batch, options.topic)
        return Staged(stage, writer, writers.hold(), writers.rows)


def _publish(options: SinkOptions, messages: Sequence[Staged | None], batch: int) -> None:
    staged = [message for message in messages if message is not None and message.runs]
    if not staged:
        return
    first = staged[0]
    runs = [run for message in staged for run in message.runs]
    is_new = publish_stage(
        _config(options), stage=first.stage, writer=first.writer, batch=batch, runs=runs
    )
    if not is_new:
        log.warning("batch %d of %s was published before: dropped", batch, first.stage)


def _drop(options: SinkOptions, messages: Sequence[Staged | None]) -> None:
    """Give up what was staged; what is published stays, and what is not named is given up later."""
    for message in messages:
        if message is not None and message.runs:
            drop_stage(_config(options), stage=message.stage, runs=message.runs)


def _stage_of_query(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Staged:
    """On an executor: stage what one task of a micro-batch has, in the name of its query."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    if query is None:
        raise BadOption(
            "Spark does not say which query this is: the option batchId is for foreachBatch of a "
            "streaming query; or this version of Spark is not supported"
        )
    return _stage(options, options.sink_id or f"spark-{query}", query, batches)


class SamelogStreamWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """On an executor: stage the rows of one task."""
        return _stage_of_query(self._options, iterator)

    def commit(  # type: ignore[override]
        self,
        messages: list[Staged | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """On the driver: publish the micro-batch."""
        _publish(self._options, messages, batchId)

    def abort(  # type: ignore[override]
        self,
        messages: list[Staged | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """On the driver: give it up; if a commit did work after all, it stays."""
        _drop(self._options, messages)


class SamelogBatchWriter(DataSourceArrowWriter):
    """The sink of a batch query; under a sinkId one is written once, however often it is run. What
    has a batchId is written once for that micro-batch, as by the sink of a streaming query.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._name = options.sink_id or f"spark-batch-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """On an executor: stage the rows of one task."""
        if self._options.batch_id is not None:
            return _stage_of_query(self._options, iterator)
        return _stage(self._options, self._name, self._name, iterator)

    def commit(self, messages: list[Staged | None]) -> None:  # type: ignore[override]
        """On the driver: publish all of it."""
        batch = self._options.batch_id
        _publish(self._options, messages, BATCH_QUERY if batch is None else batch)

    def abort(self, messages: list[Staged | None]) -> None:  # type: ignore[override]
        """On the driver: give it up."""
        _drop(self._options, messages)
