"""A batch query: the ranges between two places, settled once, when the query is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from samelog.spark.heap import settle_modules
from samelog.spark.logs.access import open_logs
from samelog.spark.options import Options
from samelog.spark.plan.catalogue import Logs, ids_of, partitions_of
from samelog.spark.plan.offsets import OffsetRange
from samelog.spark.plan.pushdown import Narrowing
from samelog.spark.plan.range_limits import check_order, settle
from samelog.spark.source.reading import (
    SamelogPartition,
    TaskReader,
    check_all_there,
    selected_topics,
    tasks_of,
)

if TYPE_CHECKING:
    import pyarrow as pa


class SamelogBatchReader(DataSourceReader):
    """Plans on the driver, reads on the executors; everything in it can be pickled."""

    def __init__(self, options: Options, tasks: TaskReader) -> None:
        self._options = options
        self.tasks = tasks
        """Reads what is planned, where the executors are."""

    def partitions(self) -> Sequence[SamelogPartition]:
        """The tasks. Raises SourceError."""
        with closing(open_logs(self._options.access)) as logs:
            ranges = self._narrow(plan(logs, self._options), logs)
        settle_modules()
        return tasks_of(ranges, self._options.splits)

    def _narrow(self, ranges: list[OffsetRange], logs: Logs) -> list[OffsetRange]:
        """What has to be read of the ranges: all."""
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's records. Raises SourceError."""
        return self.tasks.read(partition)


class NarrowingReader(SamelogBatchReader):
    """One that reads less where the query's filters allow it. A reader that has `pushFilters` fails
    every query, unless spark.sql.python.filterPushdown.enabled is set.
    """

    def __init__(self, options: Options, tasks: TaskReader) -> None:
        super().__init__(options, tasks)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """All of them stay with Spark, too."""
        self._filters = filters
        if not self._options.values.registry:
            self.tasks = self.tasks.narrowed(filters, self._options.selection.topics)
        return filters

    def _narrow(self, ranges: list[OffsetRange], logs: Logs) -> list[OffsetRange]:
        prefix = self._options.values.metadata_prefix
        return Narrowing(self._filters, prefix=prefix).apply(ranges, logs.offset_at)


def plan(logs: Logs, options: Options) -> list[OffsetRange]:
    """What the query reads. Raises SourceError."""
    catalogue = selected_topics(logs, options.selection)
    check_all_there(options.selection, catalogue)
    bounds, ids = partitions_of(catalogue), ids_of(catalogue)
    starting, ending = options.start_of(is_stream=False), options.ending
    begins = settle(starting, bounds, logs.offset_at, must_find=options.must_find)
    ends = settle(ending, bounds, logs.offset_at)
    check_order(begins, starting, ends, ending)
    return [
        OffsetRange(name, ids[name.topic], begins[name], ends[name])
        for name in sorted(bounds)
        if begins[name] < ends[name]
    ]
