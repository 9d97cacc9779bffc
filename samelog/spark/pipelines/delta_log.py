"""The log of a lake table: which files make up which version of it, in Delta Lake's format.

The format is Delta's transaction log protocol, reader version 1 and writer version 2: version N is
the file `_delta_log/N.json` (N with 20 digits), a JSON object on each line: `protocol`, `metaData`,
`add`, `remove`, `txn`, `commitInfo`. So whatever reads Delta tables reads a lake.

Invariant: a version is a function of the texts of the versions up to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote

from samelog.spark.errors import LakeError

READER_VERSION, WRITER_VERSION = 1, 2
_SAFE = "/=-_.~"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""What Spark calls the directory of rows whose partition column is null."""


REMOVED_KEPT_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file. `path`: below the table's, as the file system has it; `partition`: the texts
    of the partition columns.
    """

    path: str
    size: int
    modified_ms: int
    partition: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeCommit:
    """What one version changes. `batch`: of which query (an application id), and its number;
    `is_new_data`: rows come or go, rather than move to other files.
    """

    operation: str
    add: Sequence[DataFile] = ()
    remove: Sequence[DataFile] = ()
    batch: tuple[str, int] | None = None
    is_new_data: bool = True


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table's columns, as Spark's JSON, and which of them are partitions; `table_id` and
    `created_ms`: whose they are.
    """

    schema: str
    partition_by: tuple[str, ...] = ()
    table_id: str = ""
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class LakeVersion:
    """A version of a table; −1: there is none yet."""

    version: int = -1
    shape: TableShape | None = None
    files: Mapping[str, DataFile] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    """The last batch of each query."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """When a file that older versions have was removed (ms since 1970)."""

    def after(self, text: str) -> LakeVersion:
        """The next version. Raises LakeError if it is one that cannot be read here."""
        return self.changed(self.version + 1, _actions(text))

    def changed(
        self, version: int, actions: Iterable[tuple[str, Mapping[str, Any]]]
    ) -> LakeVersion:
        """What these actions make of it. Raises LakeError."""
        files, batches, removed = dict(self.files), dict(self.batches), dict(self.removed)
        shape = self.shape
        for kind, action in actions:
            match kind:
                case "add":
                    found = _file(action)
                    files[found.path] = found
                    removed.pop(found.path, None)
                case "remove":
                    path = unquote(action["path"])
                    files.pop(path, None)
                    removed[path] = action.get("deletionTimestamp") or 0
                case "txn":
                    batches[action["appId"]] = action["version"]
                case "metaData":
                    shape = _shape(action)
                case "protocol":
                    _check_protocol(action)
        return LakeVersion(version, shape, files, batches, removed)


def file_name(version: int) -> str:
    """Of a version, below the table's directory."""
    return f"_delta_log/{version:020d}.json"


def encode(
    commit: LakeCommit, at: LakeVersion, *, now_ms: int, table_id: str, shape: TableShape
) -> str:
    """The text of the version after `at`; the first one has `shape`, too."""
    actions: list[dict[str, Any]] = [{"commitInfo": _info(commit, now_ms)}]
    if at.shape is None:
        actions += _beginning(replace(shape, table_id=table_id, created_ms=now_ms))
    if commit.batch is not None:
        name, number = commit.batch
        actions.append({"txn": {"appId": name, "version": number, "lastUpdated": now_ms}})
    actions += ({"remove": _removed(each, commit, now_ms)} for each in commit.remove)
    actions += ({"add": _added(x, is_new_data=commit.is_new_data)} for x in commit.add)
    return "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)


def actions_of(at: LakeVersion, *, now_ms: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """All that a program has to know of a version that must be there. What was removed is told for
    as long as Delta keeps such files by default.
    """
    if at.shape is not None:
        for action in _beginning(at.shape):
            yield from action.items()
    for name, number in at.batches.items():
        yield "txn", {"appId": name, "version": number}
    for path, when_ms in at.removed.items():
        if when_ms > now_ms - REMOVED_KEPT_MS:
            place = quote(path, safe=_SAFE)
            yield "remove", {"path": place, "deletionTimestamp": when_ms, "dataChange": False}
    for file in at.files.values():
        yield "add", _added(file, is_new_data=False)


def data_file(path: str, size: int, modified_ms: int) -> DataFile:
    """A file that Spark has written below a directory of its own: the directories between have the
    partition columns in their names.
    """
    _, *directories, _ = path.split("/")
    pairs = (each.partition("=") for each in directories)
    values = tuple(
        (unquote(name), None if text == NULL_PARTITION else unquote(text))
        for name, _, text in pairs
    )
    return DataFile(path, size, modified_ms, values)


def conflict(commit: LakeCommit, at: LakeVersion) -> DataFile | None:
    """A file that the commit would remove, and somebody else has removed."""
    return next((each for each in commit.remove if each.path not in at.files), None)


def _actions(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in text.splitlines():
        if line.strip():
            yield from json.loads(line).items()


def _file(action: Mapping[str, Any]) -> DataFile:
    partition = tuple(action["partitionValues"].items())
    return DataFile(unquote(action["path"]), action["size"], action["modificationTime"], partition)


def _shape(action: Mapping[str, Any]) -> TableShape:
    columns = tuple(action["partitionColumns"])
    created_ms = action.get("createdTime") or 0
    return TableShape(action["schemaString"], columns, action.get("id", ""), created_ms)


def _check_protocol(action: Mapping[str, Any]) -> None:
    reader, writer = action["minReaderVersion"], action["minWriterVersion"]
    if reader > READER_VERSION or writer > WRITER_VERSION:
        raise LakeError(
            f"the table has version {reader} of Delta's reader protocol and {writer} of its writer "
            f"protocol; here {READER_VERSION} and {WRITER_VERSION} are known: another program has "
            "made it, or switched on one of Delta's features"
        )


def _beginning(shape: TableShape) -> list[dict[str, Any]]:
    meta = {
        "id": shape.table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": shape.schema,
        "partitionColumns": list(shape.partition_by),
        "configuration": {},
        "createdTime": shape.created_ms,
    }
    versions = {"minReaderVersion": READER_VERSION, "minWriterVersion": WRITER_VERSION}
    return [{"protocol": versions}, {"metaData": meta}]


def _info(commit: LakeCommit, now_ms: int) -> dict[str, Any]:
    counts = {"numAddedFiles": len(commit.add), "numRemovedFiles": len(commit.remove)}
    return {
        "timestamp": now_ms,
        "operation": commit.operation,
        "operationMetrics": {name: str(count) for name, count in counts.items()},
        "engineInfo": "samelog",
    }


def _added(file: DataFile, *, is_new_data: bool) -> dict[str, Any]:
    return {
        "path": quote(file.path, safe=_SAFE),
        "partitionValues": dict(file.partition),
        "size": file.size,
        "modificationTime": file.modified_ms,
        "dataChange": is_new_data,
    }


def _removed(file: DataFile, commit: LakeCommit, now_ms: int) -> dict[str, Any]:
    return {
        "path": quote(file.path, safe=_SAFE),
        "deletionTimestamp": now_ms,
        "dataChange": commit.is_new_data,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition),
        "size": file.size,
    }
