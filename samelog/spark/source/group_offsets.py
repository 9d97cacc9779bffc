"""Tells the cluster how far a query is, as the committed offsets of a consumer group.

Spark's commit must not be held up: positions go out in a thread of their own, the newest only.
Invariant: a position is never ahead of what Spark has committed; failing to tell one is logged, and
never fails the query, which does not depend on it.
"""

from __future__ import annotations

import logging
import threading

from samelog.admin.client import ask
from samelog.admin.errors import AdminError
from samelog.admin.requests import ResetGroup
from samelog.config.load import load_client
from samelog.spark.plan.offsets import Offsets, PartitionName

log = logging.getLogger(__name__)


class GroupOffsetCommitter:
    """Of one query. `tell` and `close` are for one thread."""

    def __init__(self, config: str, group: str) -> None:
        self._config = load_client(config)
        self._group = group
        self._told: dict[PartitionName, int] = {}
        self._wanted: Offsets | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="samelog-positions", daemon=True)
        self._thread.start()

    def tell(self, positions: Offsets) -> None:
        """Commit these positions as the offsets of the group."""
        with self._changed:
            self._wanted = positions
            self._changed.notify()

    def close(self) -> None:
        """Commit the last positions, and end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (wanted := self._next()) is not None:
            for name in sorted(wanted):
                if self._told.get(name) != wanted[name]:
                    self._send(name, wanted[name])

    def _next(self) -> Offsets | None:
        with self._changed:
            self._changed.wait_for(lambda: self._wanted is not None or self._is_closed)
            wanted, self._wanted = self._wanted, None
            return wanted

    def _send(self, name: PartitionName, offset: int) -> None:
        try:
            change = ResetGroup(
                self._group, name.topic, "offset", partition=name.partition, offset=offset
            )
            ask(self._config, change)
        except AdminError as error:
            log.warning("the position of %s in group %s is not told: %s", name, self._group, error)
        else:
            self._told[name] = offset
