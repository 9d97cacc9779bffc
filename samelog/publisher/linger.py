"""The thread that writes batches whose linger time is over.

Invariant: nothing lingers much longer than it may, unless it cannot be written; then it stays in
its lane, is tried again, and the next append to that lane raises the reason.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from samelog.format.errors import LogFormatError
from samelog.publisher.errors import PublisherError
from samelog.publisher.lane import Lane

log = logging.getLogger(__name__)

RETRY_S = 0.1


class LingerThread:
    """Flushes the lanes that are due; `condition` is of the publisher's lock."""

    def __init__(
        self, condition: threading.Condition, lanes: Callable[[], Iterable[Lane]], name: str
    ) -> None:
        self._condition = condition
        self._lanes = lanes
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop and wait for the thread; what lingers stays."""
        with self._condition:
            self._stopped = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        with self._condition:
            while not self._stopped:
                now = time.monotonic()
                for lane in self._lanes():
                    if lane.deadline is not None and lane.deadline <= now:
                        self._flush(lane)
                due = [lane.deadline for lane in self._lanes() if lane.deadline is not None]
                self._condition.wait(max(0.0, min(due) - time.monotonic()) if due else None)

    def _flush(self, lane: Lane) -> None:
        try:
            lane.flush()
        except (PublisherError, LogFormatError) as error:
            lane.deadline = time.monotonic() + RETRY_S
            log.debug("a batch for %s waits: %s", lane.output.name, error)
