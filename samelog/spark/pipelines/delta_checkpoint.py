"""Delta's checkpoints: all that a version of a table consists of in one Parquet file, so that
nobody has to read the versions before it.

The format is Delta's: `_delta_log/N.checkpoint.parquet`, an action in each row, a column for each
kind; `_delta_log/_last_checkpoint` names the newest. Invariant: a version that is read from its
checkpoint is the one that is read from the versions up to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from samelog.spark.errors import LakeError
from samelog.spark.pipelines.delta_log import LakeVersion, actions_of

LAST = "_delta_log/_last_checkpoint"
EVERY_VERSIONS = 100
_TEXTS = pa.map_(pa.string(), pa.string())
_FILE = [
    ("path", pa.string()),
    ("partitionValues", _TEXTS),
    ("size", pa.int64()),
    ("dataChange", pa.bool_()),
]
SCHEMA = pa.schema(
    {
        "protocol": pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
        "metaData": pa.struct(
            [
                ("id", pa.string()),
                ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                ("schemaString", pa.string()),
                ("partitionColumns", pa.list_(pa.string())),
                ("configuration", _TEXTS),
                ("createdTime", pa.int64()),
            ]
        ),
        "txn": pa.struct(
            [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
        ),
        "remove": pa.struct([*_FILE, ("deletionTimestamp", pa.int64())]),
        "add": pa.struct([*_FILE, ("modificationTime", pa.int64())]),
    }
)


def file_name(version: int) -> str:
    """Of a checkpoint, below the table's directory."""
    return f"_delta_log/{version:020d}.checkpoint.parquet"


def encode(at: LakeVersion, *, now_ms: int) -> tuple[bytes, str]:
    """The checkpoint of a version, and what LAST is to say of it."""
    rows = [{kind: action} for kind, action in actions_of(at, now_ms=now_ms)]
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), out)
    return out.getvalue().to_pybytes(), json.dumps({"version": at.version, "size": len(rows)})


def version_of(last: str) -> int | None:
    """The version whose checkpoint LAST names; None: it is of a kind that is not read here."""
    told: Mapping[str, Any] = json.loads(last)
    return None if "parts" in told or "v2Checkpoint" in told else int(told["version"])


def decode(version: int, data: bytes) -> LakeVersion:
    """A version from its checkpoint. Raises LakeError if it is one that cannot be read here."""
    table = pq.read_table(pa.BufferReader(data), columns=SCHEMA.names)
    found = LakeVersion().changed(version, _actions(table))
    if found.shape is None:
        raise LakeError(f"the checkpoint of version {version} does not say what the table is")
    return found


def _actions(table: pa.Table) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in table.to_pylist(maps_as_pydicts="strict"):
        yield from ((kind, action) for kind, action in row.items() if action is not None)
