"""A lake: a table of Parquet files with a log of its versions (`delta_log`), on any file system.

Who writes first writes files that no version names, in a directory of its own, and then creates the
next version, whole or not at all. Invariant: readers see versions, so whole commits only; a crash
leaves files that nobody reads.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions
from pyspark.sql.types import StructField, StructType

from samelog.spark.errors import LakeConflict, LakeError
from samelog.spark.pipelines import delta_checkpoint
from samelog.spark.pipelines.delta_log import (
    DataFile,
    LakeCommit,
    LakeVersion,
    TableShape,
    conflict,
    data_file,
    encode,
    file_name,
)
from samelog.spark.pipelines.hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DIRECTORY = "_commit="
"""Begins the directories of what was written together: to Spark one more partition column, so that
files of many of them are read at once; hidden from programs that only look for Parquet files."""
LOG = "_delta_log"


class LakeTable:
    """A table below `path`, which need not exist yet.

    Args:
        spark: the session.
        path: a URL of Hadoop's, or a path of its default file system.
        partition_by: the partition columns, if this creates the table.
    """

    def __init__(self, spark: SparkSession, path: str, partition_by: Iterable[str] = ()) -> None:
        self._spark = spark
        self._files = HadoopFiles(spark, path)
        self._partition_by = tuple(partition_by)
        self._snapshot = LakeVersion()
        self.path = self._files.root

    # --- reading ----------------------------------------------------------------------------------

    def snapshot(self) -> LakeVersion:
        """The newest version. Raises LakeError."""
        if self._snapshot.version < 0:
            self._snapshot = self._last_checkpoint() or self._snapshot
        while (text := self._files.read(file_name(self._snapshot.version + 1))) is not None:
            self._snapshot = self._snapshot.after(text.decode())
        if self._snapshot.version < 0 and any(True for _ in self._files.walk(LOG)):
            raise LakeError(
                f"{self.path}: the log of the table does not begin with version 0, and has no "
                "checkpoint that can be read here"
            )
        return self._snapshot

    def _last_checkpoint(self) -> LakeVersion | None:
        """The version that has one, if that can be read; else all versions are read."""
        last = self._files.read(delta_checkpoint.LAST)
        version = None if last is None else delta_checkpoint.version_of(last.decode())
        data = None if version is None else self._files.read(delta_checkpoint.file_name(version))
        return None if version is None or data is None else delta_checkpoint.decode(version, data)

    def _make_checkpoint(self, version: int) -> None:
        """So that nobody need read what is before it; whoever comes first makes it."""
        at = self.snapshot()
        if at.version != version:
            return
        data, last = delta_checkpoint.encode(at, now_ms=_now_ms())
        if self._files.create(delta_checkpoint.file_name(version), data):
            self._files.replace(delta_checkpoint.LAST, last.encode())

    def existing(self) -> LakeVersion:
        """The newest version of a table that must be there. Raises LakeError."""
        found = self.snapshot()
        if found.shape is None:
            raise LakeError(f"there is no lake at {self.path}: check --path, or run the lake first")
        return found

    def read(
        self, files: Iterable[DataFile] | None = None, *, with_path: bool = False
    ) -> DataFrame:
        """The rows of the newest version, or of some files; `with_path`: with a column `path`, of
        their file's. Raises LakeError.
        """
        found = self.existing()
        schema = self._schema(found)
        chosen = list(found.files.values() if files is None else files)
        if not chosen:
            empty = schema.add("path", "string") if with_path else schema
            return self._spark.createDataFrame([], empty)
        reader = self._spark.read.schema(schema).option("basePath", self.path)
        frame = reader.parquet(*(self._files.url(each.path) for each in chosen))
        columns = [f"`{name}`" for name in schema.names]
        if not with_path:
            return frame.select(*columns)
        return frame.select(*columns, self._files.below(functions.col("_metadata.file_path")))

    def _schema(self, at: LakeVersion) -> StructType:
        if at.shape is None:
            raise LakeError(f"there is no lake at {self.path}")
        return StructType.fromJson(json.loads(at.shape.schema))

    def partition_by(self) -> tuple[str, ...]:
        """The partition columns."""
        shape = self.snapshot().shape
        return self._partition_by if shape is None else shape.partition_by

    # --- writing ----------------------------------------------------------------------------------

    def write(self, frame: DataFrame, name: str) -> list[DataFile]:
        """Write rows as files, in a directory called after `name`, that no version has yet. Raises
        LakeError where the table has other columns.
        """
        self._check_columns(frame.schema)
        directory = f"{DIRECTORY}{name}-{uuid.uuid4().hex[:12]}"
        writer = frame.write.partitionBy(*self.partition_by()).mode("error")
        writer.parquet(self._files.url(directory))
        found = (each for each in self._files.walk(directory) if each.path.endswith(".parquet"))
        return [data_file(each.path, each.size, each.modified_ms) for each in found]

    def _check_columns(self, schema: StructType) -> None:
        shape = self.snapshot().shape
        missing = [name for name in self.partition_by() if name not in schema.names]
        if missing:
            raise LakeError(
                f"{self.path}: there is no column {missing[0]} to partition by; those there are: "
                f"{', '.join(schema.names)}"
            )
        if shape is None:
            return
        wanted = {field.name: field.dataType for field in self._schema(self._snapshot)}
        found = {field.name: field.dataType for field in schema}
        if wanted != found:
            other = sorted(dict(wanted.items() ^ found.items()))
            raise LakeError(
                f"{self.path} has other columns: {', '.join(other)} differ; write to another path, "
                "or with the options that the lake was begun with"
            )
        if self._partition_by and shape.partition_by != self._partition_by:
            raise LakeError(
                f"{self.path} is partitioned by {', '.join(shape.partition_by) or 'nothing'}, not "
                f"by {', '.join(self._partition_by)}: write to another path"
            )

    def commit(self, commit: LakeCommit, schema: StructType) -> int | None:
        """Make the next version; its number, or None if the commit's batch is there already.

        Raises LakeConflict: a file to be removed is gone.
        """
        while True:
            at = self.snapshot()
            if commit.batch is not None and at.batches.get(commit.batch[0], -1) >= commit.batch[1]:
                return None
            gone = conflict(commit, at)
            if gone is not None:
                raise LakeConflict(f"{self.path}: {gone.path} was replaced meanwhile: run it again")
            shape = TableShape(_nullable(schema).json(), self._partition_by)
            text = encode(
                commit,
                at,
                now_ms=_now_ms(),
                table_id=str(uuid.uuid4()),
                shape=shape,
            )
            version = at.version + 1
            if self._files.create(file_name(version), text.encode()):
                if version and version % delta_checkpoint.EVERY_VERSIONS == 0:
                    self._make_checkpoint(version)
                return version

    def append(self, frame: DataFrame, name: str, commit: LakeCommit) -> list[DataFile]:
        """Write rows as files called after `name`, and add them with this commit; the files, none
        if the commit's batch is there already or if nothing changes. Raises as `write`, `commit`.
        """
        files = self.write(frame, name)
        if not files and not commit.remove:
            return []
        try:
            version = self.commit(replace(commit, add=files), frame.schema)
        except LakeError:
            self.drop(files)
            raise
        if version is None:
            self.drop(files)
            return []
        return files

    def drop(self, files: Iterable[DataFile]) -> None:
        """Remove files that no version names."""
        for directory in {each.path.split("/", 1)[0] for each in files}:
            self._files.remove(directory)

    def vacuum(self, before_ms: int) -> int:
        """Remove the files that the newest version does not have and that were last changed before
        a time (ms since 1970); how many. Older versions can't be read then.
        """
        kept = self.existing().files
        count = 0
        for each in list(self._files.walk()):
            is_data = each.path.startswith(DIRECTORY) and each.path not in kept
            if is_data and each.modified_ms < before_ms:
                self._files.remove(each.path)
                count += 1
        return count


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _nullable(schema: StructType) -> StructType:
    """With columns that may all be null, as they are read from Parquet."""
    return StructType([StructField(each.name, each.dataType) for each in schema])
