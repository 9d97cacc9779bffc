"""Compacting and replaying a lake.

By compacting, many small files of a partition become few, in one commit for each partition.

A replay of a range of the log replaces the rows of its records in a lake, in one commit.

Invariant: every version has the same rows; a crash leaves files that no version names.
Also: afterwards each record of the range has the rows that the log gives, once, and all others
have those they had; readers see the lake before the commit, or after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from samelog.spark.errors import LakeError
from samelog.spark.pipelines.delta_log import DataFile, LakeCommit, LakeVersion
from samelog.spark.pipelines.hadoop_files import HadoopFiles
from samelog.spark.plan.offsets import PartitionName, parse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from samelog.spark.pipelines.lake import Lake
    from samelog.spark.pipelines.lake_table import LakeTable

TARGET_BYTES = 128 << 20
SMALL = 0.75
"""A file is left alone from this share of the target on."""
ORDER = ("topic", "partition", "offset")
PartitionValues = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Compacted:
    """One partition's: how many files became how many, and their bytes."""

    partition: PartitionValues
    before: int
    after: int
    size: int


def plan(
    files: Iterable[DataFile], target: int
) -> list[tuple[PartitionValues, list[DataFile], int]]:
    """Which partitions have files to put together, and how many they will be. Deterministic."""
    groups: dict[PartitionValues, list[DataFile]] = {}
    for file in files:
        if file.size < target * SMALL:
            groups.setdefault(file.partition, []).append(file)
    found = []
    for partition, small in sorted(groups.items(), key=lambda item: str(item[0])):
        count = max(1, -(-sum(file.size for file in small) // target))
        if count < len(small):
            found.append((partition, sorted(small, key=lambda file: file.path), count))
    return found


def compact(
    table: LakeTable,
    *,
    target: int = TARGET_BYTES,
    on_done: Callable[[Compacted], None] = lambda done: None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Compacted]:
    """Compact all partitions. May run while a query fills the lake.

    Args:
        table: of the lake.
        target: bytes of a file.
        on_done: is told of each partition.
        on_progress: is told how many bytes are compacted, of how many.

    Raises LakeError; LakeConflict: somebody has replaced the same files meanwhile.
    """
    planned = plan(table.existing().files.values(), target)
    done, read, total = list[Compacted](), 0, sum(_size(files) for _, files, _ in planned)
    for partition, files, count in planned:
        on_progress(read, total)
        read += _size(files)
        after = _compact(table, files, count)
        done.append(Compacted(partition, len(files), len(after), _size(after)))
        on_done(done[-1])
    return done


def _size(files: Iterable[DataFile]) -> int:
    return sum(file.size for file in files)


def _compact(table: LakeTable, files: Sequence[DataFile], count: int) -> list[DataFile]:
    rows = table.read(files)
    order = [name for name in ORDER if name in rows.columns]
    together = rows.repartitionByRange(count, *order) if order else rows.repartition(count)
    if order:
        together = together.sortWithinPartitions(*order)
    new = table.write(together, "compact")
    try:
        _check(table, files, new)
        commit = LakeCommit(operation="OPTIMIZE", add=new, remove=files, is_new_data=False)
        table.commit(commit, rows.schema)
    except LakeError:
        table.drop(new)
        raise
    return new


def _check(table: LakeTable, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
    """What would be committed has as many rows as what it replaces."""
    before, after = (table.read(files).count() for files in (old, new))
    if before != after:
        raise LakeError(
            f"{table.path}: {before} rows became {after}; nothing was changed: are all files of "
            "the lake readable?"
        )


PLACE = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class ReplayedRange:
    """Offsets of a partition that were replayed: [start, end)."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did: which ranges, how many files it replaced by how many."""

    ranges: tuple[ReplayedRange, ...]
    removed: int
    added: int


def replay(spark: SparkSession, lake: Lake, *, checkpoint: str | None = None) -> Replayed:
    """Replay what the source's options say: which topics, from where, to where. Of a lake that a
    query fills nothing that the query will yet bring, as its `checkpoint` says.

    Raises:
        LakeError: there is no lake, it has other columns, or no place of the records.
        LakeConflict: the lake was changed meanwhile; nothing was replayed.
    """
    table = lake.table(spark)
    at = table.existing()
    names = _places(table, lake)
    records = lake.shaped(spark.read.format("samelog").options(**lake.source).load())
    if at.batches:
        records = records.where(_inside(_positions(spark, lake, at, checkpoint), names))
    ranges = _ranges(records, names)
    if not ranges:
        return Replayed((), 0, 0)
    inside = _inside(ranges, names)
    paths = {row.path for row in _rows(table, at).where(inside).select("path").distinct().collect()}
    old = [file for path, file in at.files.items() if path in paths]
    kept = _rows(table, at, paths).where(~inside).drop("path") if old else None
    rows = records.where(inside)
    rows = rows if kept is None else rows.unionByName(kept)
    new = table.append(rows, "replay", LakeCommit(operation="REPLACE", remove=old))
    return Replayed(ranges, len(old), len(new))


def _places(table: LakeTable, lake: Lake) -> tuple[str, ...]:
    """The columns that say which record a row is of."""
    names = tuple(lake.source.get("metadataPrefix", "") + name for name in PLACE)
    missing = [name for name in names if name not in table.read().columns]
    if missing:
        raise LakeError(f"{table.path} has no column {missing[0]}, so its records are not known")
    return names


def _positions(
    spark: SparkSession, lake: Lake, at: LakeVersion, checkpoint: str | None
) -> tuple[ReplayedRange, ...]:
    """What the queries that fill the lake have brought, from their checkpoints."""
    ends: dict[PartitionName, int] = {}
    for who, batch in at.batches.items():
        place = checkpoint or lake.checkpoint(who.partition(":")[0])
        found = HadoopFiles(spark, place).read(f"offsets/{batch}")
        if found is None:
            raise LakeError(
                f"how far the query {who} is cannot be read at {place}: give the checkpoint that "
                "it was started with"
            )
        *_, source = found.decode().splitlines()
        read = parse(json.loads(source))
        for name, end in () if read is None else read.to.items():
            ends[name] = max(end, ends.get(name, 0))
    return tuple(ReplayedRange(name.topic, name.partition, 0, end) for name, end in ends.items())


def _ranges(records: DataFrame, names: tuple[str, ...]) -> tuple[ReplayedRange, ...]:
    *partition, offset = names
    found = records.groupBy(*partition).agg(f.min(offset), f.max(offset)).orderBy(*partition)
    return tuple(ReplayedRange(topic, number, a, b + 1) for topic, number, a, b in found.collect())


def _inside(ranges: tuple[ReplayedRange, ...], names: tuple[str, ...]) -> Column:
    topic, partition, offset = (f.col(name) for name in names)
    found = f.lit(False)  # noqa: FBT003 - Spark's
    for each in ranges:
        found |= (
            (topic == each.topic)
            & (partition == each.partition)
            & (offset >= each.start)
            & (offset < each.end)
        )
    return found


def _rows(table: LakeTable, at: LakeVersion, paths: set[str] | None = None) -> DataFrame:
    """Rows of the lake, with the `path` of their file."""
    return table.read(
        [file for path, file in at.files.items() if paths is None or path in paths],
        with_path=True,
    )
