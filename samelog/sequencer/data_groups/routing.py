"""Logs of partitions wherever they are on this member: in group 0, or in a data group; and what
passes of them, for who asks for rows, or for a view.

Invariant: a partition is read from the group that the table names, or not at all; a member without
a replica of it says so. A view is read from its base, while its owner may read that. Implements
replicator.interfaces.RowSource.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from samelog.config.authorisation import Rights
from samelog.replicator.interfaces import (
    HeldElsewhere,
    LogSource,
    MergedStream,
    RequestRefused,
    RowReading,
    SessionStream,
)
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.filtering.pieces import RowFilters
from samelog.sequencer.filtering.readings import RowsHere
from samelog.sequencer.filtering.view_stream import ViewStream, check_owner, narrowed
from samelog.sequencer.merge.merged_partition import gone_log
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.views import View
from samelog.wire.bounds import RowsAsked
from samelog.wire.errors import FaultCode


class RoutedLogs:
    """One member's."""

    def __init__(
        self, cluster: LogSource, machine: StateMachine, groups: DataGroups, filters: RowFilters
    ) -> None:
        """`cluster` and `machine`: of group 0."""
        self._cluster = cluster
        self._machine = machine
        self._groups = groups
        self._filters = filters

    def _source(self, topic: str, partition: int) -> LogSource:
        """Raises RequestRefused."""
        known = self._machine.state.topics.named(topic)
        if known is None or not 0 <= partition < known.partitions:
            return self._cluster  # which says why not
        number = known.partition_numbers[partition]
        if not self._machine.state.placement.group_of(number):
            return self._cluster
        replica = self._groups.holding(number)
        if replica is None:
            raise HeldElsewhere(topic, partition, self._groups.holders(number, to_read=True))
        logs = replica.group_replica.logs
        if (
            number not in logs.machine.state.partitions.by_number
        ):  # or known under the number before a reset
            text = f"partition {partition} of {topic!r} is being made here"
            raise RequestRefused(FaultCode.NOT_READY, text, "retry")
        return logs.source

    def open_merged(self, topic: str, topic_id: str | None, partition: int) -> MergedStream:
        """A merged partition, or one of a view. Raises RequestRefused."""
        view = self._machine.state.views.named(topic)
        if view is not None:
            return self._open_view(view, topic_id, partition)
        return self._source(topic, partition).open_merged(topic, topic_id, partition)

    def _open_view(self, view: View, log_id: str | None, partition: int) -> ViewStream:
        state = self._machine.state
        base, known = state.topics.by_id[view.base_id], state.topic_of_view(view)
        if log_id is not None and log_id != view.log_id:
            raise gone_log(view.name, known if log_id in view.former_logs else None)
        source = self._source(base.name, partition)
        opened = source.open_merged(base.name, base.log_id, partition)
        return ViewStream(view, opened, lambda: self._machine.state)

    async def confirm_end(self, stream: MergedStream) -> int:
        """Where what is committed ends, executed here or not. Raises RequestRefused."""
        view = self._machine.state.views.named(stream.topic)
        if view is not None:
            stream = self._open_view(view, stream.topic_id, stream.index).base
        return await self._source(stream.topic, stream.index).confirm_end(stream)

    def rows_of(
        self, stream: MergedStream, asked: RowsAsked | None, identity: str, rights: Rights
    ) -> RowReading | None:
        """What passes of a partition that was opened; None: all of it, as it is. Raises
        RequestRefused.
        """
        if isinstance(stream, ViewStream):
            check = partial(check_owner, rights, stream.view, stream.base.topic)
            check()
            wanted, condition = narrowed(stream, asked)
            whole = self._rows(stream, stream.base, wanted, identity)
            return replace(whole, check=check, condition=condition)
        return None if asked is None else self._rows(stream, stream, asked, identity)

    def _rows(
        self, stream: MergedStream, base: MergedStream, asked: RowsAsked, identity: str
    ) -> RowsHere:
        topic = self._machine.state.topics.by_id[self._machine.state.topics.by_name[base.topic]]
        partition = topic.partition_numbers[base.index]
        replica = self._groups.holding(partition) if topic.is_placed else None
        machine = self._machine if replica is None else replica.group_replica.logs.machine
        return RowsHere(stream, base, machine, partition, asked, self._filters, identity)

    def open_session(
        self, *, session: str, topic: str, topic_id: str, partition: int, run: int
    ) -> SessionStream:
        """One run of an input. Raises RequestRefused."""
        return self._source(topic, partition).open_session(
            session=session, topic=topic, topic_id=topic_id, partition=partition, run=run
        )
