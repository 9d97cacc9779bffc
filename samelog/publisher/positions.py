"""How far a publisher has got, by partition.

Invariant: positions of one partition are ordered, and what is appended later has a higher one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from samelog.format.positions import SessionPosition


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


PartitionPositions: TypeAlias = Mapping[TopicPartition, SessionPosition]


@dataclass(frozen=True, slots=True)
class Positions:
    """How far each partition has come, in three steps; what has not begun a step is missing there.

    `appended`: in the local files. `acknowledged`: committed, and durable on a majority of nodes.
    `merged`: in the merged log, durable on a majority, so that the local files may go.
    """

    appended: PartitionPositions = field(default_factory=dict)
    acknowledged: PartitionPositions = field(default_factory=dict)
    merged: PartitionPositions = field(default_factory=dict)
