"""Records as the publisher hands them on: one, or many by column; and how they are cut into
batches.

Positions say how far a publisher has got, by partition.

Invariant: what is in them can be encoded, or the kernels refuse it before anything is written.
Also: positions of one partition are ordered, and what is appended later has a higher one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from samelog.format.dedup import DEDUP_EPOCH
from samelog.format.positions import SessionPosition

if TYPE_CHECKING:
    from typing_extensions import Buffer


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


PartitionPositions: TypeAlias = Mapping[TopicPartition, SessionPosition]
Places: TypeAlias = Sequence[tuple[TopicPartition, SessionPosition]]
"""Of several runs, so that a partition may be there more than once."""


@dataclass(frozen=True, slots=True)
class Positions:
    """How far each partition has come, in three steps; what has not begun a step is missing there.

    `appended`: in the local files. `acknowledged`: committed, and durable on a majority of nodes.
    `merged`: in the merged log, durable on a majority, so that the local files may go.
    """

    appended: PartitionPositions = field(default_factory=dict)
    acknowledged: PartitionPositions = field(default_factory=dict)
    merged: PartitionPositions = field(default_factory=dict)


NO_PRODUCER = -1


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How records are cut into batches, and the producer id they carry (-1: none)."""

    batch_bytes: int
    max_record_bytes: int
    producer_id: int = NO_PRODUCER

    @property
    def epoch(self) -> int:
        """The producer epoch of the batches."""
        return DEDUP_EPOCH if self.producer_id >= 0 else -1


class NumberedRecord(NamedTuple):
    """One record to append; `timestamp` in ms, `number` is its dedup id."""

    value: Buffer | None
    key: Buffer | None
    headers: Sequence[tuple[str, Buffer | None]] | None
    timestamp: int
    number: int

    def as_columns(self) -> RecordColumns:
        """The same as columns of one record."""
        keys = None if self.key is None else (self.key,)
        headers = None if self.headers is None else (self.headers,)
        return RecordColumns((self.value,), keys, headers, self.timestamp, self.number)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records to append, by column; `first_number` is the dedup id of the first."""

    values: Sequence[Buffer | None]
    keys: Sequence[Buffer | None] | None
    headers: Sequence[Sequence[tuple[str, Buffer | None]] | None] | None
    timestamps: int | Sequence[int]
    first_number: int | None = None

    def check_lengths(self) -> None:
        """Raise ValueError unless every column is as long as the values."""
        count = len(self.values)
        for name, column in (
            ("keys", self.keys),
            ("headers", self.headers),
            ("timestamps", None if isinstance(self.timestamps, int) else self.timestamps),
        ):
            if column is not None and len(column) != count:
                raise ValueError(f"{count} values have {len(column)} {name}")

    def cut(self, start: int, stop: int, first_number: int | None = None) -> RecordColumns:
        """The records [start, stop)."""
        times = self.timestamps
        return RecordColumns(
            self.values[start:stop],
            None if self.keys is None else self.keys[start:stop],
            None if self.headers is None else self.headers[start:stop],
            times if isinstance(times, int) else times[start:stop],
            first_number,
        )

    def pick(self, indexes: Sequence[int]) -> RecordColumns:
        """The records at these places."""
        times, keys, headers = self.timestamps, self.keys, self.headers
        return RecordColumns(
            [self.values[i] for i in indexes],
            None if keys is None else [keys[i] for i in indexes],
            None if headers is None else [headers[i] for i in indexes],
            times if isinstance(times, int) else [times[i] for i in indexes],
        )
