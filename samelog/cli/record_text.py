"""Records as commands print them: the value, or all there is as JSON.

Invariant: JSON holds text where bytes are UTF-8, else {"base64": ...}; nothing is lost.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from samelog.format._kernels import Record

if TYPE_CHECKING:
    from samelog.subscriber.typed_rows import TypedRow


def as_value(record: Record) -> bytes:
    """A record's value; nothing for null."""
    return record.value or b""


def as_line(record: Record, rows: Sequence[bytes] | None = None) -> bytes:
    """All of a record as a JSON object, with its value's rows (JSON, too) if it has any."""
    found = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": as_text(record.key),
        "value": as_text(record.value),
        "headers": [[name, as_text(value)] for name, value in record.headers],
    }
    if rows is not None:
        found["rows"] = list(map(msgspec.Raw, rows))
    return msgspec.json.encode(found)


def as_row(row: TypedRow) -> bytes:
    """The values of a row of a schema, as JSON by column; null for a record without a value."""
    return msgspec.json.encode(row.values, enc_hook=iso_of)


def as_row_line(row: TypedRow) -> bytes:
    """All of a row as a JSON object: the record that it is of, and its values."""
    found = {
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "timestamp": row.timestamp,
        "key": as_text(row.key),
        "row": msgspec.Raw(as_row(row)),
    }
    return msgspec.json.encode(found)


def iso_of(moment: Any) -> Any:
    """Of a time in nanoseconds: pandas' own type."""
    return moment.isoformat()


def as_text(data: bytes | None) -> object:
    """Bytes as JSON can hold them."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
