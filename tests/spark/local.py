"""Runs the source as Spark does, but in this process: fast, and without a session."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.serializers import CPickleSerializer
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.types import StructType

from samelog.spark.source.batch_reader import SamelogBatchReader
from samelog.spark.source.data_source import SamelogDataSource
from samelog.store.merged.truncation import LogStart
from tests.subscriber.merged import Growing

if TYPE_CHECKING:
    from samelog.spark.source.stream_reader import SamelogStreamReader


def source(**options: object) -> SamelogDataSource:
    """The data source with these options."""
    told = CaseInsensitiveDict({name: str(value) for name, value in options.items()})
    return SamelogDataSource(told)


def columns_of(made: SamelogDataSource) -> StructType:
    """What Spark would make of the source's schema, where that takes no JVM."""
    schema = made.schema()
    assert isinstance(schema, StructType)
    return schema


def batch_reader(*, schema: Any = None, **options: object) -> SamelogBatchReader:
    """A batch query's reader."""
    made = source(**options)
    reader = made.reader(schema or columns_of(made))
    assert isinstance(reader, SamelogBatchReader)
    return reader


def stream_reader(**options: object) -> SamelogStreamReader:
    """A streaming query's reader."""
    from samelog.spark.source.stream_reader import SamelogStreamReader  # Spark 4.1 has none

    made = source(**options)
    reader = made.streamReader(columns_of(made))
    assert isinstance(reader, SamelogStreamReader)
    return reader


def rows(
    reader: SamelogBatchReader | SamelogStreamReader, partitions: Sequence[InputPartition]
) -> list[dict[str, Any]]:
    """What the tasks yield, in order; reader and tasks travel as to an executor."""
    pickled = pickle.dumps((reader, list(partitions)))
    there, tasks = CPickleSerializer().loads(pickled)  # type: ignore[no-untyped-call]
    batches = [batch for task in tasks for batch in there.read(task)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def values(found: Sequence[dict[str, Any]]) -> list[bytes]:
    """The values of rows."""
    return [row["value"] for row in found]


def archive(log: Growing, offset: int) -> None:
    """Archive the segments before the one that begins at `offset`."""
    base, checksum = log.log.segment_of(offset)
    archived = [each.base_offset for each in log.log.segments() if each.base_offset < base]
    log.log.archive(LogStart(offset, base, checksum))
    for each in archived:
        log.archive(each)


class Journal:
    """A streaming query in this process: journals offsets as Spark does, as texts."""

    def __init__(self, **options: object) -> None:
        self.options = options
        self.texts: list[str] = []
        """The ends of the planned batches."""
        self.restart()

    def restart(self, **options: object) -> None:
        """The driver is killed, and another one goes on with the journal."""
        self.options = {**self.options, **options}
        self.reader = stream_reader(**self.options)

    @property
    def last(self) -> dict[str, Any]:
        """Where the query is."""
        text = self.texts[-1] if self.texts else json.dumps(self.reader.initialOffset())
        offset: dict[str, Any] = json.loads(text)
        return offset

    def plan(self) -> bool:
        """Plan a batch; False: there is nothing to do."""
        start = self.last
        text = json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        if text == json.dumps(start):
            return False
        self.texts.append(text)
        return True

    def tasks(self, batch: int) -> Sequence[InputPartition]:
        """The tasks of a planned batch."""
        symbolic = json.dumps(self.reader.initialOffset())
        start = json.loads(self.texts[batch - 1] if batch else symbolic)
        return self.reader.partitions(start, json.loads(self.texts[batch]))

    def read(self, batch: int) -> list[dict[str, Any]]:
        """The records of a planned batch."""
        return rows(self.reader, self.tasks(batch))

    def run(self) -> list[list[bytes]]:
        """Plan and read until there is no more: the values of each batch."""
        found = []
        while self.plan():
            found.append(values(self.read(len(self.texts) - 1)))
        return found
