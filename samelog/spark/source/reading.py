"""What a task does: reads its ranges, and yields them as record batches.

Invariant: a task that ends without an error has yielded every record of its ranges once, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from samelog.format.arrow import to_arrow
from samelog.format.errors import LogFormatError
from samelog.spark.errors import NotReadable
from samelog.spark.logs.access import read_range
from samelog.spark.logs.archived_records import within
from samelog.spark.options import LogAccess, Splits
from samelog.spark.payload.columns import KAFKA_COLUMNS, Shape
from samelog.spark.payload.payload import Payload
from samelog.spark.plan.batching import Task, cut, pack
from samelog.spark.plan.offsets import OffsetRange, PartitionName
from samelog.subscriber.tail_reader import Chunk

if TYPE_CHECKING:
    import pyarrow as pa


class SamelogPartition(InputPartition):
    """One task's ranges; no paths, no addresses: each host finds its own way to them."""

    def __init__(self, task: Task) -> None:
        super().__init__([tuple(each) for each in task])
        self.task = task


def tasks_of(ranges: list[OffsetRange], splits: Splits) -> list[SamelogPartition]:
    """The tasks that read these ranges."""
    pieces = cut(ranges, at_least=splits.min_partitions, most=splits.max_records)
    small = splits.small_piece if splits.max_records is None else 0
    tasks = pack(pieces, small=small, at_least=splits.min_partitions)
    return [SamelogPartition(task) for task in tasks]


@dataclass(frozen=True, slots=True)
class TaskReader:
    """Reads tasks of one query; it goes to the hosts that run them."""

    access: LogAccess
    schema: StructType
    may_skip: bool
    payload: Payload | None = None

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """A task's records. (Spark makes a task without ranges when there is nothing to read.)"""
        if isinstance(partition, SamelogPartition):
            shape = Shape(self.schema)
            for each in partition.task:
                yield from self._read(each, shape)

    def _read(self, wanted: OffsetRange, shape: Shape) -> Iterator[pa.RecordBatch]:
        for table in self._tables(wanted, shape):
            unpacked = table
            if self.payload is not None:
                unpacked = self.payload.unpack(table, wanted.name)
            yield from shape.batches(unpacked)

    def _tables(self, wanted: OffsetRange, shape: Shape) -> Iterator[pa.Table]:
        """The records of a range."""
        if self.access.archive is not None:
            from samelog.spark.logs.archived_logs import read_archived

            columns = shape.schema.names if self.payload is None else KAFKA_COLUMNS
            yield from read_archived(self.access.archive, wanted, columns, may_skip=self.may_skip)
            return
        for chunk, start, end in read_range(self.access, wanted, may_skip=self.may_skip):
            table = _decode(chunk, wanted.name)
            if start > chunk.first_offset or end < chunk.next_offset:
                table = within(table, (start, end))
            yield table


def _decode(chunk: Chunk, name: PartitionName) -> pa.Table:
    try:
        return to_arrow(chunk.data, 0, chunk.size, topic=name.topic, partition=name.partition)
    except LogFormatError as error:
        raise NotReadable(
            f"{name}: the records from offset {chunk.first_offset} on are damaged: {error}; "
            "compare the logs with `samelog verify`"
        ) from error
