"""A streaming query: which offsets each micro-batch has.

Only the driver's one reader plans; its copies on executors read, and know nothing of its state.
Invariant: what a batch reads is a function of its two offsets, which Spark journals; the first
offset is symbolic, and what it meant is pinned in the end of the empty first batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from samelog.spark.errors import BadOption, SourceError
from samelog.spark.logs.access import open_logs
from samelog.spark.logs.config_file import config_path
from samelog.spark.options import Options
from samelog.spark.plan.catalogue import Catalogue, Logs, ends_of, partitions_of
from samelog.spark.plan.offsets import INITIAL, Offsets, StreamOffset, parse, ranges_between
from samelog.spark.plan.progress import (
    advance,
    begin_stream,
    clamp,
    count,
    is_behind,
    is_idle,
    refuse_losses,
)
from samelog.spark.plan.range_limits import LATEST, check_order, settle
from samelog.spark.source.reading import (
    SamelogPartition,
    TaskReader,
    check_all_there,
    selected_topics,
    tasks_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from samelog.spark.source.group_offsets import GroupOffsetCommitter

LOOK_S = 0.02
"""Spark asks every 10 ms for the latest offset; more often than this nobody looks for it."""


class SamelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made twice, by Spark: for the driver, and to be sent to the executors."""

    def __init__(self, options: Options, tasks: TaskReader) -> None:
        self._options = options
        self._tasks = tasks
        self._logs: Logs | None = None
        self._positions: GroupOffsetCommitter | None = None
        self._seen: Catalogue = {}
        self._seen_at = float("-inf")
        self._stops: Offsets | None = None
        self._is_bounded = False
        """The query ends by itself: Trigger.AvailableNow."""
        self._batch_at = float("-inf")

    def __reduce__(self) -> tuple[Any, ...]:
        """What the driver's has open stays there."""
        return type(self), (self._options, self._tasks)

    # --- what Spark asks --------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Symbolic, and always the same: Spark asks more than once, and may restart in between."""
        return INITIAL

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """By the options."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        return ReadAllAvailable() if limits.max_bytes is None else ReadMaxBytes(limits.max_bytes)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The next offset; `start` itself while there is nothing to do. Raises SourceError."""
        begin = None if start is None else parse(start)
        if start is None or begin is None:
            return self._begin().to_json()
        seen = self._refresh_beyond(begin)
        if self._options.fail_on_data_loss:
            refuse_losses(begin, seen)
        end = self._advance(begin, seen, limit)
        return start if is_idle(begin, end) or self._waits(begin, end) else end.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """The query ends where the logs end now."""
        self._seen_at = float("-inf")
        self._is_bounded = True
        catalogue = self._refresh()
        self._stops = {**ends_of(catalogue), **self._ending(catalogue)}

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """How far the logs reach, for the query's progress."""
        seen = self._refresh()
        return StreamOffset(
            {topic: seen[topic].topic_id for topic in seen}, ends_of(seen)
        ).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[SamelogPartition]:
        """The tasks of a batch. Raises SourceError."""
        first, last = parse(start), parse(end)
        if last is None:
            return []
        ranges = ranges_between(first, last)
        if not self._options.fail_on_data_loss:
            ranges = clamp(ranges, self._refresh())
        return tasks_of(ranges, self._options.splits)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's records. Raises SourceError."""
        return self._tasks.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark will not ask again for what is before `end`."""
        committed = parse(end)
        if self._positions is not None and committed is not None:
            self._positions.tell(committed.to)

    def stop(self) -> None:
        """The query is over."""
        if self._positions is not None:
            self._positions.close()
            self._positions = None
        if self._logs is not None:
            self._logs.close()
            self._logs = None

    # --- how it is answered -----------------------------------------------------------------------

    def _refresh(self) -> Catalogue:
        """What there is, seen a moment ago at most."""
        if time.monotonic() >= self._seen_at + LOOK_S:
            logs = self._logs or self._open()
            self._seen = selected_topics(logs, self._options.selection)
            self._seen_at = time.monotonic()
        return self._seen

    def _open(self) -> Logs:
        options = self._options
        self._logs = open_logs(options.access)
        if options.position_group is not None:
            path = config_path(options.access)
            if path is None:
                raise BadOption("positionGroup needs the option config: nodes keep the positions")
            from samelog.spark.source.group_offsets import GroupOffsetCommitter

            self._positions = GroupOffsetCommitter(path, options.position_group)
        return self._logs

    def _refresh_beyond(self, begin: StreamOffset) -> Catalogue:
        """What there is; who lags behind the query is given some time."""
        seen = self._refresh()
        deadline = time.monotonic() + self._options.access.local_wait_s
        while is_behind(begin, seen) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            self._opened().turn()
            self._seen_at = float("-inf")
            seen = self._refresh()
        return seen

    def _begin(self) -> StreamOffset:
        """Where the query starts, settled now."""
        catalogue = self._refresh()
        check_all_there(self._options.selection, catalogue)
        starting = self._options.start_of(is_stream=True)
        begins = settle(
            starting,
            partitions_of(catalogue),
            self._opened().offset_at,
            must_find=self._options.must_find,
        )
        check_order(begins, starting, self._ending(catalogue), self._options.ending)
        return begin_stream(catalogue, begins)

    def _opened(self) -> Logs:
        if self._logs is None:
            raise SourceError("the query was stopped")
        return self._logs

    def _advance(
        self, begin: StreamOffset, seen: Catalogue, limit: ReadLimit | None
    ) -> StreamOffset:
        """The next end, within the limits of the options, unless Spark wants all there is."""
        limits = self._options.limits
        if limit is None or isinstance(limit, ReadAllAvailable):
            return advance(begin, seen, self._stop_offsets())
        return advance(
            begin,
            seen,
            self._stop_offsets(),
            most=limits.max_offsets,
            most_bytes=limits.max_bytes,
        )

    def _stop_offsets(self) -> Offsets:
        """Where the query ends, settled once; by default nowhere."""
        if self._stops is None:
            self._stops = self._ending(self._refresh())
        return self._stops

    def _ending(self, catalogue: Catalogue) -> Offsets:
        ending = self._options.ending
        if ending.everywhere == LATEST:
            return {}
        return settle(ending, partitions_of(catalogue), self._opened().offset_at)

    def _waits(self, begin: StreamOffset, end: StreamOffset) -> bool:
        """Whether there is too little to make a batch of, and no need to make one yet."""
        limits = self._options.limits
        now = time.monotonic()
        if limits.min_offsets is not None and not self._is_bounded:
            is_little = count(begin, end) < limits.min_offsets
            if is_little and now < self._batch_at + limits.max_delay_s:
                return True
        self._batch_at = now
        return False
