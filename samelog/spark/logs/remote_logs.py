"""Merged logs at the nodes, for the driver.

Nodes may lag, but never run ahead of what Raft has committed, and what is committed stays so.
Invariant: an end that was told once is never taken back; all are committed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from samelog.replicator.pull.range_pull import Wanted
from samelog.replicator.pull.repair_pull import PullRefused
from samelog.spark.errors import NotReadable
from samelog.spark.logs.nodes import Nodes
from samelog.spark.plan.catalogue import Catalogue, OffsetBounds, TopicState, record_bytes
from samelog.spark.plan.offsets import PartitionName
from samelog.wire.errors import FaultCode
from samelog.wire.messages import MergedStartsAt, Start

LOOK_S = 0.04
PER_PARTITION_S = 0.001
"""A look asks for every partition: those with many are asked less often."""
GONE = (FaultCode.UNKNOWN_TOPIC, FaultCode.TOPIC_GONE)


class RemoteLogs:
    """The logs of a cluster, for the driver. Implements catalogue.Logs."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._known: dict[str, TopicState] = {}
        self._next_look_at = float("-inf")

    def names(self) -> list[str]:
        """All topics. Raises SourceError."""
        return self._nodes.topics()

    def topic_states(self, topics: Iterable[str]) -> Catalogue:
        """These topics, as a node knows them. Raises NotReadable."""
        asked = tuple(topics)
        if time.monotonic() >= self._next_look_at or set(self._known) != set(asked):
            states = {topic: self._topic_state(topic) for topic in asked}
            self._known = {topic: state for topic, state in states.items() if state is not None}
            count = sum(len(state.partitions) for state in self._known.values())
            self._next_look_at = time.monotonic() + LOOK_S + PER_PARTITION_S * count
        return self._known

    def turn(self) -> None:
        """Use another node, and ask it at the next call."""
        self._nodes.turn()
        self._next_look_at = float("-inf")

    def _topic_state(self, topic: str) -> TopicState | None:
        known = self._known.get(topic)
        count = 1 if known is None else len(known.partitions)
        found = self._locate(topic, range(count))
        if not found:
            return None
        if found[0].partitions > count:
            found += self._locate(topic, range(count, found[0].partitions))
        told = {number: _bounds(place) for number, place in enumerate(found)}
        state = TopicState(found[0].topic_id, told)
        return state if known is None else _never_back(known, state)

    def _locate(self, topic: str, partitions: Iterable[int]) -> list[MergedStartsAt]:
        """Where these partitions end; empty if there is no such topic."""
        try:
            return self._nodes.locate([Wanted(topic, None, n, Start.LATEST) for n in partitions])
        except PullRefused as error:
            if error.code in GONE:
                return []
            raise NotReadable(f"{topic}: {error}") from error

    def offset_at(self, name: PartitionName, timestamp_ms: int) -> int | None:
        """The first offset with this timestamp or a later one."""
        wanted = Wanted(name.topic, None, name.partition, Start.TIMESTAMP, timestamp_ms)
        try:
            [found] = self._nodes.locate([wanted])
        except PullRefused as error:
            raise NotReadable(f"{name}: {error}") from error
        return found.offset if found.offset < found.end_offset else None

    def close(self) -> None:
        """End the connection."""
        self._nodes.close()


def _bounds(place: MergedStartsAt) -> OffsetBounds:
    """Of a partition whose end is at `place`."""
    size = record_bytes((place.base_offset, place.byte), place.end_offset)
    return OffsetBounds(place.start_offset, place.end_offset, size)


def _never_back(known: TopicState, told: TopicState) -> TopicState:
    """What is known by now of the same topic: another node may lag behind the one before."""
    if known.topic_id != told.topic_id:
        return told
    bounds = dict(told.partitions)
    for number, before in known.partitions.items():
        now = bounds.get(number, before)
        size = now.record_bytes or before.record_bytes
        bounds[number] = OffsetBounds(max(before.start, now.start), max(before.end, now.end), size)
    return TopicState(told.topic_id, bounds)
