"""The offsets that Spark journals: how far each partition is read, and of which log.

Spark compares offsets as JSON texts, so that the same offset must always be the same text: sorted
keys, no optional spelling. The first offset of a query is symbolic, because Spark asks for it more
than once; what "latest" meant is pinned in the end of the first batch, as its `from`. Partitions
that appear later get their start in the same way, so that the ranges of a batch are a function of
its two offsets, and a replay reads the same records.

    {"v": 1, "log": {topic: topic id}, "from": {topic: {partition: offset}}, "to": {…}}

Invariant: `parse(end.to_json()) == end`, and equal ends have equal texts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from samelog.spark.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
INITIAL: dict[str, Any] = {"init": True, "v": VERSION}
"""The symbolic offset before everything."""


Span = tuple[int, int]
"""Offsets [first, behind) of one partition."""


def within(table: pa.Table, wanted: Span) -> pa.Table:
    """The records with offsets [first, behind); offsets rise, so that they lie together.

    The buffer is looked at, because Arrow's own ways would import pandas.
    """
    if len(table) == 0:
        return table
    offsets = table["offset"].combine_chunks()
    numbers = memoryview(offsets.buffers()[1]).cast("q")[offsets.offset :][: len(offsets)]
    first, last = (bisect_left(numbers, bound) for bound in wanted)
    return table.slice(first, last - first)


class PartitionName(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = Mapping[PartitionName, int]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A journalled offset. `logs`: topic -> topic id; `to`: the next offset to be read of each
    partition; `begin`: where partitions start that the offset before this one does not have.
    """

    logs: Mapping[str, str]
    to: Offsets
    begin: Offsets = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As Spark journals it."""
        told: dict[str, Any] = {"from": _nested(self.begin)} if self.begin else {}
        told["log"] = {topic: self.logs[topic] for topic in sorted(self.logs)}
        return {**told, "to": _nested(self.to), "v": VERSION}


class OffsetRange(NamedTuple):
    """The offsets [start, end) of one partition of one log."""

    name: PartitionName
    topic_id: str
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.name} [{self.start}, {self.end})"


def parse(offset: Mapping[str, Any]) -> StreamOffset | None:
    """What Spark has journalled; None: the symbolic one. Raises SourceError."""
    try:
        if offset["v"] != VERSION:
            raise SourceError(
                f"the checkpoint has offsets of format {offset['v']}, this is {VERSION}: use the "
                "version of samelog that wrote it, or a new checkpoint"
            )
        if "init" in offset:
            return None
        logs = {str(topic): str(log) for topic, log in offset["log"].items()}
        return StreamOffset(logs, flat(offset["to"]), flat(offset.get("from", {})))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SourceError(
            f"the checkpoint has an offset that is not samelog's: {dict(offset)!r}; it belongs to "
            "another source: use a new checkpoint"
        ) from error


def flat(nested: Mapping[str, Mapping[str, int]]) -> dict[PartitionName, int]:
    """Offsets by partition, of offsets by topic and then partition, as JSON has them."""
    return {
        PartitionName(topic, int(partition)): int(offset)
        for topic, partitions in nested.items()
        for partition, offset in partitions.items()
    }


def _nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    told: dict[str, dict[str, int]] = {}
    for name in sorted(offsets):
        told.setdefault(name.topic, {})[str(name.partition)] = offsets[name]
    return told


def ranges_between(start: StreamOffset | None, end: StreamOffset) -> list[OffsetRange]:
    """What a batch reads: everything from one journalled offset to the other, by partition.

    A partition goes on where `start` ends, if that is of the same log; else it starts where `end`
    says. Raises SourceError when the two do not fit together.
    """
    found = []
    for name in sorted(end.to):
        begin = begin_of(start, end, name)
        if begin > end.to[name]:
            raise SourceError(
                f"{name}: the batch would go back, from offset {begin} to {end.to[name]}: the "
                "checkpoint was changed; use a new one"
            )
        if begin < end.to[name]:
            found.append(OffsetRange(name, end.logs[name.topic], begin, end.to[name]))
    return found


def begin_of(start: StreamOffset | None, end: StreamOffset, name: PartitionName) -> int:
    """Where a batch begins in a partition."""
    if start is not None and start.logs.get(name.topic) == end.logs[name.topic]:
        known = start.to.get(name)
        if known is not None:
            return known
    begin = end.begin.get(name)
    if begin is None:
        raise SourceError(f"{name}: the checkpoint does not say where the partition starts")
    return begin
