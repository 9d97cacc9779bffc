"""Records as commands print them: the value, or all there is as JSON.

Invariant: JSON holds text where bytes are UTF-8, else {"base64": ...}; nothing is lost.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from samelog.format._kernels import Record


def as_value(record: Record, rows: Sequence[Mapping[str, Any]] | None = None) -> bytes:
    """A record's value, nothing for null; or its rows, a line each."""
    if rows is not None:
        return b"\n".join(map(msgspec.json.encode, rows))
    return record.value or b""


def as_line(record: Record, rows: Sequence[Mapping[str, Any]] | None = None) -> bytes:
    """All of a record as a JSON object, with its value's rows if it has any."""
    found = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": as_text(record.key),
        "value": as_text(record.value),
        "headers": [[name, as_text(value)] for name, value in record.headers],
    }
    return msgspec.json.encode(found if rows is None else {**found, "rows": rows})


def as_text(data: bytes | None) -> object:
    """Bytes as JSON can hold them."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
