"""Record batches as an Arrow table, without any Python work per record.

Invariant: a table has a row per record, in order, with the same columns and types whatever the
batches hold. The compiled kernel fills the buffers; pyarrow, an optional dependency, only wraps
them and is imported when first needed.
"""

from __future__ import annotations

from functools import cache, lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any

from samelog.format import _kernels as kernels
from samelog.format.compression import decompress

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer


_INT32 = Struct("=i")
_OFFSETS = Struct("=2i")
KEPT_BYTES = 2 << 20
"""Of the columns topic and partition of a log."""


class ArrowMissing(ImportError):
    """pyarrow is not installed."""


def to_arrow(
    data: Buffer,
    start: int,
    stop: int,
    *,
    topic: str,
    partition: int,
    verify_crc: bool = True,
) -> pa.Table:
    """Return the records of all batches in `data[start:stop]`, compressed or not, as a table.

    Columns: key, value (binary), topic (string), partition (int32), offset (int64), timestamp
    (ms, UTC), timestampType (int32: 0 CreateTime, 1 LogAppendTime), headers (list of struct of
    key, string, and value, binary). Control batches are skipped, CRCs verified, unless whoever
    calls has just done so; a LogAppendTime batch gives its maxTimestamp to all its records. The
    table has a chunk per GiB of records.

    Raises:
        CorruptBatch: a batch or a record is invalid, or the data stops inside a batch.
        DecompressionError: a batch cannot be unpacked, or takes more than the default limit.
        ArrowMissing: pyarrow is not installed.
    """
    arrow = _import_arrow()
    schema = _schema(arrow)
    chunks: list[pa.RecordBatch] = []
    while start < stop or not chunks:
        columns = kernels.decode_columns(data, start, stop, decompress, verify_crc=verify_crc)
        start = columns.end
        chunks.append(_record_batch(arrow, schema, columns, topic, partition))
    return arrow.Table.from_batches(chunks, schema=schema)


def _import_arrow() -> Any:
    try:
        import pyarrow as arrow
    except ImportError as error:
        raise ArrowMissing(
            "Arrow tables need pyarrow: install samelog with the extra 'arrow'"
        ) from error
    return arrow


@cache
def _schema(arrow: Any) -> Any:
    header = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
    return arrow.schema(
        [
            ("key", arrow.binary()),
            ("value", arrow.binary()),
            ("topic", arrow.string()),
            ("partition", arrow.int32()),
            ("offset", arrow.int64()),
            ("timestamp", arrow.timestamp("ms", tz="UTC")),
            ("timestampType", arrow.int32()),
            ("headers", arrow.list_(header)),
        ]
    )


def _record_batch(
    arrow: Any, schema: Any, columns: kernels.Columns, topic: str, partition: int
) -> Any:
    rows = columns.rows
    arrays = [
        _strings(arrow, columns.keys, arrow.binary()),
        _strings(arrow, columns.values, arrow.binary()),
        *_place(arrow, topic, partition, rows),
        _numbers(arrow, columns.offsets, arrow.int64(), rows),
        _numbers(arrow, columns.timestamps, schema.field("timestamp").type, rows),
        _numbers(arrow, columns.timestamp_types, arrow.int32(), rows),
        _headers(arrow, schema.field("headers").type, columns),
    ]
    return arrow.RecordBatch.from_arrays(arrays, schema=schema)


def _place(arrow: Any, topic: str, partition: int, rows: int) -> list[Any]:
    """The columns topic and partition. Those of the last few logs are kept: filling them again was
    a tenth of the time of a table of small records.
    """
    kept = _kept(arrow, topic, partition)
    if rows > len(kept[0]):
        return _repeated(arrow, topic, partition, rows)
    return [column.slice(0, rows) for column in kept]


@lru_cache(maxsize=8)
def _kept(arrow: Any, topic: str, partition: int) -> list[Any]:
    row_bytes = len(topic) + 2 * _INT32.size
    return _repeated(arrow, topic, partition, KEPT_BYTES // row_bytes)


def _repeated(arrow: Any, topic: str, partition: int, rows: int) -> list[Any]:
    number = _numbers(arrow, _INT32.pack(partition), arrow.int32(), 1)[0]
    return [arrow.repeat(_text(arrow, topic), rows), arrow.repeat(number, rows)]


def _text(arrow: Any, text: str) -> Any:
    """A scalar. (`arrow.scalar` would import pandas, which takes as long as reading much.)"""
    data = text.encode()
    buffers = [None, arrow.py_buffer(_OFFSETS.pack(0, len(data))), arrow.py_buffer(data)]
    return arrow.Array.from_buffers(arrow.string(), 1, buffers)[0]


def _numbers(arrow: Any, block: Buffer, kind: Any, rows: int) -> Any:
    return arrow.Array.from_buffers(kind, rows, [None, arrow.py_buffer(block)])


def _strings(arrow: Any, strand: kernels.Strand, kind: Any) -> Any:
    validity = arrow.py_buffer(strand.validity) if strand.nulls else None
    buffers = [validity, arrow.py_buffer(strand.offsets), arrow.py_buffer(strand.data)]
    return arrow.Array.from_buffers(kind, strand.rows, buffers, strand.nulls)


def _headers(arrow: Any, kind: Any, columns: kernels.Columns) -> Any:
    pairs = arrow.Array.from_buffers(
        kind.value_type,
        columns.header_keys.rows,
        [None],
        children=[
            _strings(arrow, columns.header_keys, arrow.string()),
            _strings(arrow, columns.header_values, arrow.binary()),
        ],
    )
    offsets = arrow.py_buffer(columns.header_offsets)
    return arrow.Array.from_buffers(kind, columns.rows, [None, offsets], children=[pairs])
