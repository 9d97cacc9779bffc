"""Where in a session a publisher has got to.

Invariant: places of one partition are ordered as tuples, and what is appended later has a higher
place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from samelog.format.positions import SessionPosition


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Positions:
    """How far each partition has come, in three steps; what has not begun a step is missing there.

    `appended`: in the local files. `acknowledged`: committed, and durable on a majority of nodes.
    `merged`: in the merged log, durable on a majority, so that the local files may go.
    """

    appended: Mapping[TopicPartition, SessionPosition] = field(default_factory=dict)
    acknowledged: Mapping[TopicPartition, SessionPosition] = field(default_factory=dict)
    merged: Mapping[TopicPartition, SessionPosition] = field(default_factory=dict)


def behind(
    wanted: Mapping[TopicPartition, SessionPosition],
    reached: Mapping[TopicPartition, SessionPosition],
) -> dict[TopicPartition, SessionPosition]:
    """The wanted places that are not reached."""
    return {
        name: place
        for name, place in wanted.items()
        if name not in reached or reached[name] < place
    }
