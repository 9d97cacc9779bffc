"""Views as Kafka's consumers see them: topics that are read only, with the offsets of their base.

What passes is computed a piece at a time. Until the piece that is wanted is there, there is nothing
to fetch; then whoever waits is woken. Each piece is a batch that reaches as far as was looked, so
that consumers advance where nothing passes (docs/typed.md, T27).

Invariant: a view is read while its owner may read the base, and nothing is written to it.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from uuid import UUID

from samelog.config.authorisation import Rights
from samelog.format.errors import LogFormatError
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.replicator.interfaces import MergedStream, RequestRefused, StreamListener
from samelog.replicator.pull.listening import Listening
from samelog.sequencer.filtering.pieces import RowFilters
from samelog.sequencer.filtering.readings import RowsHere
from samelog.sequencer.filtering.view_stream import ViewStream, check_owner, rows_of_view
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.tables.views import View
from samelog.store.merged.reader import MergedReader

PARTITIONS_KEPT = 4096


class RowsOf(Protocol):
    """Makes what passes: all, or only of what is committed."""

    def __call__(self, *, is_committed: bool) -> RowsHere:
        """As it is now."""


class RowsUnreadable(LogFormatError):
    """What passes of a view cannot be computed here."""


class ViewPartition(Listening):
    """One partition of a view. Implements any_broker.WatchedLog."""

    def __init__(self, base: MergedPartition, rows: RowsOf) -> None:
        super().__init__()
        self._base, self._rows = base, rows
        self._stream = rows(is_committed=False).stream
        self._computing: set[tuple[int, bool]] = set()
        self._failed: dict[tuple[int, bool], RequestRefused] = {}

    @property
    def log(self) -> MergedReader:
        """Of the base, whose offsets these are."""
        return self._base.log

    @property
    def fault(self) -> RequestRefused | None:
        """Why it cannot be read any more."""
        return self._stream.fault

    def add_listener(self, listener: StreamListener) -> None:
        """Tell it when there may be more."""
        super().add_listener(listener)
        self._base.add_listener(listener)

    def remove_listener(self, listener: StreamListener) -> None:
        """Tell it no more."""
        super().remove_listener(listener)
        self._base.remove_listener(listener)

    def ready(self, offset: int, *, is_stable: bool) -> bytes:
        """What passes from an offset on, if that is computed; it will be, if there is more. Raises
        LogFormatError.
        """
        rows, place = self._rows(is_committed=is_stable), (offset, is_stable)
        if place in self._failed:
            raise RowsUnreadable(str(self._failed.pop(place)))
        if offset >= rows.end:
            return b""
        kept = rows.filters.kept(rows.source, offset)
        if kept is not None:
            return kept.data
        if place not in self._computing:
            self._computing.add(place)
            task = asyncio.get_running_loop().create_task(self._compute(rows, place))
            task.add_done_callback(lambda _: self._computing.discard(place))
        return b""

    async def _compute(self, rows: RowsHere, place: tuple[int, bool]) -> None:
        try:
            await rows.piece(place[0])
        except RequestRefused as refused:
            if self._listeners:
                self._failed[place] = refused
        self._computing.discard(place)
        self.changed()


class KafkaViews:
    """The views of a cluster, at one node."""

    def __init__(self, machine: StateMachine, filters: RowFilters, rights: Rights) -> None:
        self._machine, self._filters, self._rights = machine, filters, rights
        self._partitions: dict[tuple[str, int], ViewPartition] = {}

    def topic(self, key: str | UUID) -> Topic | None:
        """A view as a topic, by its name or its id."""
        state = self._machine.state
        index = state.views.index
        view = index.by_name.get(key) if isinstance(key, str) else index.by_log.get(key.hex)
        return None if view is None else state.topic_of_view(view)

    def of(self, topic: Topic) -> View | None:
        """The view that a topic stands for; None: it is a topic."""
        return self._machine.state.views.by_id.get(topic.topic_id)

    def refuse_writes(self, topic: Topic) -> None:
        """Raises ApiError, if it is a view."""
        if self.of(topic) is not None:
            text = f"{topic.name!r} is a view: it has no records of its own, and takes none"
            raise ApiError(ErrorCode.invalid_topic_exception, text)

    def partition(
        self, view: View, base: MergedPartition, machine: StateMachine, number: int
    ) -> ViewPartition:
        """One of a view's, with the base's as it is here. `machine`: of the group that has the
        partition. Raises ApiError.
        """
        try:
            check_owner(self._rights, view, base.topic)
        except RequestRefused as refused:
            raise ApiError(ErrorCode.topic_authorization_failed, str(refused)) from refused
        key = view.log_id, base.index
        known = self._partitions.get(key)
        if known is None or known.log is not base.log:
            if len(self._partitions) >= PARTITIONS_KEPT:
                self._partitions.clear()
            rows = self._rows(view, base, machine, number)
            known = self._partitions[key] = ViewPartition(base, rows)
        return known

    def _rows(self, view: View, base: MergedStream, machine: StateMachine, number: int) -> RowsOf:
        stream = ViewStream(view, base, lambda: self._machine.state)

        def rows(is_committed: bool) -> RowsHere:
            asked = rows_of_view(view)._replace(is_committed=is_committed)
            made = stream, base, machine, number, asked, self._filters
            return RowsHere(*made, view.log_id, lambda: check_owner(self._rights, view, base.topic))

        return rows
