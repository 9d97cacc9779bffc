"""What the driver knows of the logs: topics, their ids, and the offsets that can be read.

Invariant: `end` of a partition never lies above what Raft has committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from samelog.spark.plan.offsets import Offsets, PartitionName


class OffsetBounds(NamedTuple):
    """The offsets [start, end) of a partition can be read; a record takes about `record_bytes` in
    the log, by its newest segment (0: not known).
    """

    start: int
    end: int
    record_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic now."""

    topic_id: str
    partitions: Mapping[int, OffsetBounds]


def record_bytes(segment: tuple[int, int], end: int) -> float:
    """What a record takes in a segment, (base offset, bytes), that ends before the offset `end`."""
    base, size_bytes = segment
    return size_bytes / (end - base) if end > base else 0.0


Catalogue = Mapping[str, TopicState]
"""By name; a topic that does not exist is not in it."""


class Logs(Protocol):
    """Where the driver learns of logs: from nodes, or from local copies."""

    def names(self) -> list[str]:
        """All topics. Raises SourceError."""

    def topic_states(self, topics: Iterable[str]) -> Catalogue:
        """The present states of these topics. Raises SourceError if they cannot be found out."""

    def offset_at(self, name: PartitionName, timestamp_ms: int) -> int | None:
        """The first offset with this timestamp or a later one; None if there is none."""

    def turn(self) -> None:
        """Ask another node next time, and forget this answer: it is older than what is known."""

    def close(self) -> None:
        """Close files and connections."""


def partitions_of(catalogue: Catalogue) -> dict[PartitionName, OffsetBounds]:
    """All partitions."""
    return {
        PartitionName(topic, partition): bounds
        for topic, state in catalogue.items()
        for partition, bounds in state.partitions.items()
    }


def ends_of(catalogue: Catalogue) -> Offsets:
    """Where all partitions end."""
    return {name: bounds.end for name, bounds in partitions_of(catalogue).items()}


def ids_of(catalogue: Catalogue) -> dict[str, str]:
    """Topic -> topic id."""
    return {topic: state.topic_id for topic, state in catalogue.items()}
