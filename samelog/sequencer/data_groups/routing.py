"""Logs of partitions wherever they are on this member: in group 0, or in a data group.

Invariant: a partition is read from the group that the table names, or not at all; a member without
a replica of it says so. Implements replicator.interfaces.LogSource.
"""

from __future__ import annotations

from samelog.replicator.interfaces import (
    HeldElsewhere,
    LogSource,
    MergedStream,
    RequestRefused,
    SessionStream,
)
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.state.machine import StateMachine
from samelog.wire.errors import FaultCode


class RoutedLogs:
    """One member's."""

    def __init__(self, cluster: LogSource, machine: StateMachine, groups: DataGroups) -> None:
        """`cluster` and `machine`: of group 0."""
        self._cluster = cluster
        self._machine = machine
        self._groups = groups

    def _source(self, topic: str, partition: int) -> LogSource:
        """Raises RequestRefused."""
        known = self._machine.topic_named(topic)
        if known is None or not 0 <= partition < known.partitions:
            return self._cluster  # which says why not
        number = known.partition_numbers[partition]
        if not self._machine.state.placement.group_of(number):
            return self._cluster
        replica = self._groups.holding(number)
        if replica is None:
            raise HeldElsewhere(topic, partition, self._groups.holders(number))
        logs = replica.group_replica.logs
        if number not in logs.machine.state.partitions:  # or known under the number before a reset
            text = f"partition {partition} of {topic!r} is being made here"
            raise RequestRefused(FaultCode.NOT_READY, text, "retry")
        return logs.source

    def open_merged(self, topic: str, topic_id: str | None, partition: int) -> MergedStream:
        """A merged partition. Raises RequestRefused."""
        return self._source(topic, partition).open_merged(topic, topic_id, partition)

    async def confirm_end(self, stream: MergedStream) -> int:
        """Where what is committed ends, executed here or not. Raises RequestRefused."""
        return await self._source(stream.topic, stream.index).confirm_end(stream)

    def open_session(
        self, *, session: str, topic: str, topic_id: str, partition: int, run: int
    ) -> SessionStream:
        """One run of an input. Raises RequestRefused."""
        return self._source(topic, partition).open_session(
            session=session, topic=topic, topic_id=topic_id, partition=partition, run=run
        )
