"""Writes the rows of a query as records: each micro-batch, or each batch query, once and whole.

Tasks stage what they have (samelog.publisher.staging): a majority of the nodes holds it, and nobody
reads it. The driver's commit publishes what all tasks staged by one decision of the cluster, keyed
by the sink and Spark's batch id: a batch that Spark repeats, after whatever failure, is dropped.

Spark makes the writers on the driver (twice for each micro-batch) and pickles them to the tasks:
making one costs nothing, and it keeps no state.

Invariant: every row of a batch is in exactly one of its pieces, and the rows of a piece keep their
order. Options are checked as in `samelog.spark.options`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from samelog.config.tables.client import Compression
from samelog.format.arguments import check_choice, parse_digits, shown
from samelog.format.errors import InvalidName
from samelog.format.names import check_session_name, check_topic_name
from samelog.format.numbers import BATCH_NUMBERS
from samelog.spark.errors import BadOption, TopicNotFound
from samelog.spark.heap import settle_modules
from samelog.spark.logs.access import shared_nodes
from samelog.spark.logs.config_file import config_path
from samelog.spark.options import LogAccess, ReadMode

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

    from samelog.admin.registry import SchemaRegistry
    from samelog.admin.requests import StagedRun
    from samelog.config.tables.client import ClientConfig
    from samelog.publisher.staging import StagedWriter
    from samelog.publisher.typed_rows import RowEncoder
    from samelog.spark.logs.nodes import Nodes

RowTarget = tuple[str | None, int | None]
"""What the columns topic and partition say."""
_BYTES = (BinaryType, StringType)
_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "value": _BYTES,
    "key": _BYTES,
    "topic": (StringType,),
    "partition": (IntegerType, LongType),
    "timestamp": (TimestampType,),
    "headers": (ArrayType,),
}
PASSED_OVER = ("offset", "timestampType")
"""Of records that were read: those that are written get others."""


class Piece(NamedTuple):
    """Rows of one topic, and of one partition unless their keys decide."""

    topic: str
    partition: int | None
    rows: pa.Table


def check_columns(schema: StructType, topic: str | None, *, is_typed: bool = False) -> None:
    """Raises BadOption where these columns cannot be written as records; `is_typed`: of rows."""
    found = {field.name: field.dataType for field in schema}
    kinds = _beside_rows(found) if is_typed else _with_value(found)
    if topic is None and "topic" not in kinds:
        raise BadOption("the topic is missing: give the option topic, or a column topic")
    for name, kind in kinds.items():
        if name in PASSED_OVER:
            continue
        allowed = _COLUMNS.get(name)
        if allowed is None:
            known = ", ".join(_COLUMNS)
            raise BadOption(f"column {name} is no part of a record; allowed are: {known}")
        if not isinstance(kind, allowed):
            wanted = " or ".join(each().simpleString() for each in allowed if each is not ArrayType)
            wanted = wanted or "array<struct<key:string,value:binary>>"
            raise BadOption(f"column {name} is {kind.simpleString()}; it must be {wanted}")


def _with_value(kinds: dict[str, DataType]) -> dict[str, DataType]:
    """Raises BadOption."""
    if "value" not in kinds:
        raise BadOption(f"a query that writes needs a column value; found: {', '.join(kinds)}")
    return kinds


def _beside_rows(kinds: dict[str, DataType]) -> dict[str, DataType]:
    """The columns that are the record's, not the row's. Raises BadOption."""
    if "value" in kinds:
        raise BadOption("valueFormat=schema makes values of the other columns: drop column value")
    beside = {name: kind for name, kind in kinds.items() if name in (*_COLUMNS, *PASSED_OVER)}
    if len(beside) == len(kinds):
        raise BadOption("valueFormat=schema: the query has no column of the topic's schema")
    return beside


def pieces(batch: pa.RecordBatch, topic: str | None) -> Iterator[Piece]:
    """The rows of a batch by where they go; `topic`: for all of them, whatever a column says.
    Raises BadOption.
    """
    import pyarrow as pa

    table = pa.Table.from_batches([batch])
    if topic is not None and "topic" in table.schema.names:
        table = table.drop_columns(["topic"])
    by = [name for name in ("topic", "partition") if name in table.schema.names]
    others = [name for name in table.schema.names if name not in (*by, *PASSED_OVER)]
    rows = _stamped(table.select(others))
    for (said, partition), part in _grouped(table.select(by), rows):
        where = topic or said
        if where is None:
            raise BadOption("a row has no topic: fill the column, or give the option topic")
        yield Piece(where, partition, part)


def _grouped(places: pa.Table, rows: pa.Table) -> Iterator[tuple[RowTarget, pa.Table]]:
    """The rows by what the columns topic and partition say of them; the sort keeps their order."""
    import pyarrow.compute as pc

    names = places.schema.names
    if not names:
        yield (None, None), rows
        return
    counted = places.group_by(names, use_threads=False).aggregate([([], "count_all")])
    if len(counted) > 1:
        by = [(name, "ascending") for name in names]
        rows = rows.take(pc.sort_indices(places, sort_keys=by))
        counted = counted.sort_by(by)
    begin = 0
    for group in counted.to_pylist():
        yield (group.get("topic"), group.get("partition")), rows.slice(begin, group["count_all"])
        begin += group["count_all"]


def _stamped(rows: pa.Table) -> pa.Table:
    """Without a column of times that holds none: such records get the time of writing. Raises
    BadOption.
    """
    if "timestamp" not in rows.schema.names:
        return rows
    missing = rows.column("timestamp").null_count
    if missing == len(rows):
        return rows.drop_columns(["timestamp"])
    if missing:
        raise BadOption(
            f"{missing} of {len(rows)} rows have no timestamp: fill the column in all of them, or "
            "drop it"
        )
    return rows


SINK_ID_MAX = 100
"""Characters; sessions are named after it."""
_NAMES = ("topic", "sinkId", "batchId", "config", "compression", "valueFormat", "registry")
_KNOWN = {name.lower(): name for name in _NAMES}
_SPARKS_OWN = ("checkpointlocation", "path")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """`topic`: of all rows, whatever their column says. `sink_id`: under which the cluster
    remembers the last batch; by default that of the query, which its checkpoint keeps. `batch_id`:
    of the micro-batch that a batch query writes, within `foreachBatch`. `compression`: of batches;
    by default the config's. `is_typed`: values are rows of the topic's schema; `registry`: by the
    ids of the one at this URL.
    """

    topic: str | None = None
    sink_id: str | None = None
    batch_id: int | None = None
    config: str | None = None
    compression: Compression | None = None
    is_typed: bool = False
    registry: str = ""


def parse_sink_options(told: Mapping[str, str]) -> SinkOptions:
    """The options as Spark hands them over. Raises BadOption."""
    texts = {}
    for name, text in told.items():
        lower = name.lower()
        if lower.startswith("kafka.") or lower in _SPARKS_OWN:
            continue
        if lower not in _KNOWN:
            raise BadOption(f"{name} is no option; those there are: {', '.join(_KNOWN.values())}")
        texts[_KNOWN[lower]] = text
    sink_id, topic = texts.get("sinkId"), texts.get("topic")
    try:
        if topic is not None:
            check_topic_name(topic)
        if sink_id is not None:
            check_session_name(sink_id)
    except InvalidName as error:
        raise BadOption(f"{'topic' if sink_id is None else 'topic or sinkId'}: {error}") from error
    if sink_id is not None and len(sink_id) > SINK_ID_MAX:
        raise BadOption(f"sinkId has {len(sink_id)} characters; {SINK_ID_MAX} are allowed")
    batch_id, packing = _batch_id(texts.get("batchId")), _compression(texts.get("compression"))
    is_typed, registry = _rows(texts), texts.get("registry", "")
    config = texts.get("config")
    return SinkOptions(topic, sink_id, batch_id, config, packing, is_typed, registry)


def _rows(texts: Mapping[str, str]) -> bool:
    """Whether rows of schemas are written. Raises BadOption."""
    kind = texts.get("valueFormat", "").lower()
    if kind not in ("", "schema"):
        raise BadOption(f"valueFormat: {kind!r}: what is written is schema, or a column value")
    if "registry" in texts and not kind:
        raise BadOption("registry goes with valueFormat=schema")
    return bool(kind)


def _compression(text: str | None) -> Compression | None:
    try:
        return None if text is None else check_choice("compression", text.lower(), Compression)
    except ValueError as error:
        raise BadOption(str(error)) from error


def _batch_id(text: str | None) -> int | None:
    if text is None:
        return None
    number = parse_digits(text, BATCH_NUMBERS)
    if number is None:
        raise BadOption(f"batchId: {shown(text)} is no number of a batch, as foreachBatch gives it")
    return number


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

    def __init__(self, nodes: Nodes, stage: str, options: SinkOptions) -> None:
        from samelog.spark.logs.nodes import RemoteLogs

        self._nodes = nodes
        self._logs = RemoteLogs(nodes)
        self._stage = stage
        self._options = options
        self._encoders: dict[str, RowEncoder] = {}
        self._writers: dict[str, StagedWriter] = {}
        self._counts: dict[str, int] = {}
        self._stack = ExitStack()
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Stage a batch of rows. Raises SourceError, PublisherError, RowMisfit."""
        for piece in pieces(batch, self._options.topic):
            writer = self._writer(piece.topic)
            count = self._counts[piece.topic]
            if piece.partition is not None and not 0 <= piece.partition < count:
                raise BadOption(
                    f"a row is for {piece.topic}-{piece.partition}, but {piece.topic} has the "
                    f"partitions 0 to {count - 1}: mend the column partition, or drop it"
                )
            rows = self._encoded(piece, writer) if self._options.is_typed else piece.rows
            writer.append_arrow(rows, partition=piece.partition)
        self.rows += len(batch)

    def _encoded(self, piece: Piece, writer: StagedWriter) -> pa.Table:
        """Rows of a schema as records. Raises RowMisfit, NoSchema, BadOption."""
        from samelog.spark.sink_rows import encoded

        encoder = self._encoders.get(piece.topic)
        if encoder is None:
            registry = _registry(self._options.registry)
            encoder = self._encoders[piece.topic] = writer.row_encoder(registry)
        return encoded(piece.rows, encoder, piece.topic)

    def _writer(self, topic: str) -> StagedWriter:
        found = self._writers.get(topic)
        if found is None:
            from samelog.publisher.staging import StagedWriter

            made = StagedWriter(
                topic,
                stage=self._stage,
                config=self._nodes.config,
                partitions=self._counts.setdefault(topic, self._partitions(topic)),
                compression=self._options.compression,
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


def _registry(url: str) -> SchemaRegistry | None:
    """Raises BadOption."""
    if not url:
        return None
    from samelog.admin.registry import SchemaRegistry

    try:
        return SchemaRegistry(url)
    except ValueError as error:
        raise BadOption(f"registry: {error}") from error


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
    with TaskWriters(_nodes(options), stage, options) as writers:
        for batch in batches:
            writers.add(batch)
        staged = Staged(stage, writer, writers.hold(), writers.rows)
    settle_modules()
    return staged


def _publish(options: SinkOptions, messages: Sequence[Staged | None], batch: int) -> None:
    staged = [message for message in messages if message is not None and message.runs]
    if not staged:
        return
    from samelog.publisher.staging import publish_stage

    first = staged[0]
    runs = [run for message in staged for run in message.runs]
    is_new = publish_stage(
        _config(options), stage=first.stage, writer=first.writer, batch=batch, runs=runs
    )
    settle_modules()
    if not is_new:
        log.warning("batch %d of %s was published before: dropped", batch, first.stage)


def _drop(options: SinkOptions, messages: Sequence[Staged | None]) -> None:
    """Give up what was staged; what is published stays, and what is not named is given up later."""
    from samelog.publisher.staging import drop_stage

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
