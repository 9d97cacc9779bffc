"""Compacts a lake: many small files of a partition become few, in one commit for each partition.

Invariant: every version has the same rows; a crash leaves files that no version names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samelog.spark.errors import LakeError
from samelog.spark.pipelines.delta_log import DataFile, LakeCommit

if TYPE_CHECKING:
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
) -> list[Compacted]:
    """Compact all partitions. May run while a query fills the lake.

    Args:
        table: of the lake.
        target: bytes of a file.
        on_done: is told of each partition.

    Raises LakeError; LakeConflict: somebody has replaced the same files meanwhile.
    """
    done = []
    for partition, files, count in plan(table.existing().files.values(), target):
        after = _compact(table, files, count)
        size = sum(file.size for file in after)
        done.append(Compacted(partition, len(files), len(after), size))
        on_done(done[-1])
    return done


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
