"""How far streaming queries lag behind the logs, from what Spark reports of each micro-batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from samelog.spark.errors import SourceError
from samelog.spark.plan.offsets import PartitionName, parse


@dataclass(frozen=True, slots=True)
class Lag:
    """One source of a query after a micro-batch: records not read yet, of each partition."""

    query: str
    batch: int
    partitions: Mapping[PartitionName, int]

    @property
    def total(self) -> int:
        """The lag of all partitions together."""
        return sum(self.partitions.values())


class LagListener(StreamingQueryListener):
    """Calls `on_lag` after each micro-batch; for `spark.streams.addListener`."""

    def __init__(self, on_lag: Callable[[Lag], None]) -> None:
        self._on_lag = on_lag

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: no lag is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Report the lag after a micro-batch."""
        progress = event.progress
        for source in progress.sources:
            lag = lag_between(source.endOffset, source.latestOffset)
            if lag is not None:
                self._on_lag(Lag(progress.name or str(progress.id), progress.batchId, lag))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the lag has not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""


def lag_between(end: str | None, latest: str | None) -> Mapping[PartitionName, int] | None:
    """Records between two offsets as Spark reports them; None of other sources, or if not known."""
    try:
        read, there = (parse(json.loads(text)) if text else None for text in (end, latest))
    except (ValueError, TypeError, SourceError):
        return None
    if read is None or there is None:
        return None
    return {name: max(0, there.to[name] - read.to.get(name, 0)) for name in there.to}
