"""What a task does: reads its ranges, and yields them as record batches.

Which topics and partitions a query reads, of those there are.

Invariant: a task that ends without an error has yielded every record of its ranges once, in order.
Also: a topic or partition that the query names and that does not exist is an error, never
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.types import StructType

from samelog.format.arrow import to_arrow
from samelog.format.errors import LogFormatError
from samelog.spark.errors import NotReadable, TopicNotFound
from samelog.spark.heap import settle_modules
from samelog.spark.logs.access import local_directory, read_range
from samelog.spark.logs.config_file import config_path
from samelog.spark.options import LogAccess, Splits, TopicSelection
from samelog.spark.payload.payload import KAFKA_COLUMNS, Payload, Shape
from samelog.spark.plan.catalogue import Catalogue, Logs, TopicState
from samelog.spark.plan.conditions import conditions
from samelog.spark.plan.offsets import OffsetRange, PartitionName, within
from samelog.spark.plan.progress import Task, cut, pack

if TYPE_CHECKING:
    import pyarrow as pa

    from samelog.subscriber.tail_reader import Chunk


def selected_topics(logs: Logs, selection: TopicSelection) -> Catalogue:
    """What there is of the selection now. Raises SourceError."""
    topics = selection.topics
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        topics = tuple(name for name in logs.names() if pattern.fullmatch(name))
    found = logs.topic_states(topics)
    if selection.assigned is None:
        return found
    return {topic: _only(topic, state, selection.assigned[topic]) for topic, state in found.items()}


def _only(topic: str, state: TopicState, numbers: tuple[int, ...]) -> TopicState:
    missing = sorted(set(numbers) - set(state.partitions))
    if missing:
        raise TopicNotFound(
            f"assign: topic {topic} has no partition {', '.join(map(str, missing))}; it has "
            f"{', '.join(map(str, sorted(state.partitions)))}"
        )
    return TopicState(state.topic_id, {number: state.partitions[number] for number in numbers})


def check_all_there(selection: TopicSelection, catalogue: Catalogue) -> None:
    """Every topic that is named must exist. Raises TopicNotFound."""
    missing = [topic for topic in selection.topics if topic not in catalogue]
    if missing:
        raise TopicNotFound(
            f"there is no topic {', '.join(missing)}: check the name, or make it with "
            "`samelog topic create`; a subscriber's directory has only the topics it copies"
        )
    if selection.pattern is not None and not catalogue:
        raise TopicNotFound(f"subscribePattern: no topic matches {selection.pattern!r}")


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

    def narrowed(self, filters: Iterable[Filter], topics: Sequence[str]) -> TaskReader:
        """One that has nodes leave out what does not pass filters on the columns of the topics'
        schemas; copies have nobody who does. Raises NotReadable.
        """
        payload, access = self.payload, self.access
        is_asked = config_path(access) is not None and local_directory(access) is None
        if payload is None or payload.typed is None or not (is_asked and topics):
            return self
        from samelog.spark.logs.row_filters import narrowed

        access = narrowed(access, topics, conditions(filters, payload.schema.names))
        typed = replace(payload.typed, access=access)
        return replace(self, access=access, payload=replace(payload, typed=typed))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """A task's records. (Spark makes a task without ranges when there is nothing to read.)"""
        if isinstance(partition, SamelogPartition):
            shape = Shape(self.schema)
            for each in partition.task:
                yield from self._read(each, shape)
        settle_modules()

    def _read(self, wanted: OffsetRange, shape: Shape) -> Iterator[pa.RecordBatch]:
        for table in self._tables(wanted, shape):
            unpacked = table
            if self.payload is not None:
                unpacked = self.payload.unpack(table, wanted)
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
        return to_arrow(
            chunk.data,
            0,
            chunk.size,
            topic=name.topic,
            partition=name.partition,
            verify_crc=False,  # who made the chunk has
        )
    except LogFormatError as error:
        raise NotReadable(
            f"{name}: the records from offset {chunk.first_offset} on are damaged: {error}; "
            "compare the logs with `samelog verify`"
        ) from error
