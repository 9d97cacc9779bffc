"""The pipeline `query-topic`: a topic that an SQL statement defines, over other topics.

The statement runs as a streaming query; its rows become records, of which readers see whole
micro-batches, each once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from samelog.spark.errors import BadOption
from samelog.spark.pipelines.query_definition import Definition, Source
from samelog.spark.pipelines.running import triggered

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RECORD = "key BINARY, value BINARY"


def start(
    spark: SparkSession, wanted: Definition, *, config: str, trigger: str, checkpoint: str
) -> StreamingQuery:
    """Start the query; the topic must exist. Raises SourceError, and what Spark says of the SQL."""
    for source in wanted.sources:
        _load(spark, source, config).createOrReplaceTempView(source.view)
    records = as_records(spark.sql(wanted.sql), wanted)
    publish = partial(_publish, config, wanted)
    writer = records.writeStream.queryName(wanted.name).outputMode(wanted.output_mode)
    writer = writer.option("checkpointLocation", checkpoint).foreachBatch(publish)
    return triggered(writer, trigger).start()


def _publish(config: str, wanted: Definition, records: DataFrame, batch: int) -> None:
    """A micro-batch, on the driver; once, by the sink's name and the batch's number."""
    writer = records.write.format("samelog").option("config", config)
    writer = writer.options(topic=wanted.topic, sinkId=wanted.name, batchId=batch)
    writer.mode("append").save()


def _load(spark: SparkSession, source: Source, config: str) -> DataFrame:
    reader = spark.read if source.static else spark.readStream
    options = {"config": config, "subscribe": source.topic, "startingOffsets": "earliest"}
    if source.schema:
        options |= {"valueFormat": source.format, "valueSchema": source.schema}
    frame = reader.format("samelog").options(**{**options, **source.options}).load()
    if source.watermark is not None and not source.static:
        column, delay = source.watermark
        if column not in frame.columns:
            raise BadOption(
                f"the watermark of {source.topic} is of {column}, and it has only "
                f"{', '.join(frame.columns)}"
            )
        frame = frame.withWatermark(column, delay)
    return frame


def as_records(rows: DataFrame, wanted: Definition) -> DataFrame:
    """The rows of a statement as records with `key` and `value`. Raises BadOption."""
    if not rows.isStreaming:
        raise BadOption("the statement reads no stream: name a source that is not static in it")
    if wanted.key is not None and wanted.key not in rows.columns:
        raise BadOption(
            f"the key is {wanted.key}, and the statement gives {', '.join(rows.columns)}"
        )
    if wanted.format == "arrow":
        return rows.mapInArrow(_streams(wanted.key), RECORD)
    key = f.lit(None) if wanted.key is None else f.col(wanted.key)
    value = f.to_json(f.struct("*"), {"ignoreNullFields": "false"})
    return rows.select(key.cast("string").alias("key"), value.alias("value"))


def _streams(key: str | None) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes records of Arrow IPC streams: one of each batch of rows, or of each key in it."""
    return partial(_as_streams, key)


def _as_streams(key: str | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        if not len(batch):
            continue
        parts = [(None, batch)] if key is None else _by_key(batch, key)
        keys = pa.array([_text(value) for value, _ in parts], pa.binary())
        values = pa.array([_stream(rows) for _, rows in parts], pa.binary())
        yield pa.RecordBatch.from_arrays([keys, values], ["key", "value"])


def _by_key(batch: pa.RecordBatch, key: str) -> list[tuple[object, pa.RecordBatch]]:
    """The rows of each key, in the order in which the keys come first."""
    import pyarrow as pa

    places: dict[object, list[int]] = {}
    for number, value in enumerate(batch.column(key).to_pylist()):
        places.setdefault(value, []).append(number)
    return [(value, batch.take(pa.array(rows))) for value, rows in places.items()]


def _text(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value, default=str)).encode()


def _stream(rows: pa.RecordBatch) -> bytes:
    import pyarrow as pa

    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(out.getvalue())
