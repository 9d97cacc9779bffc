"""Tells the cluster how far a named subscriber has come, so that anybody can ask there.

Its positions stay in its own file, and count; what is told is for showing (`processed_offset`,
`samelog group processed`, lag): the positions of a group that has its name and no members.

Invariant: whether or not anything can be told, the subscriber reads and stores as without it; what
is told was dealt with.
"""

from __future__ import annotations

import logging
import threading
import time

from samelog.admin.errors import AdminError
from samelog.admin.group_requests import NotePositions
from samelog.admin.kept import PASSING, KeptConnection
from samelog.config.tables.client import ClientConfig
from samelog.subscriber.positions import PositionStore

log = logging.getLogger(__name__)

EVERY_S = 10.0
ANSWER_S = 5.0
LAST_S = 5.0
ToldPositions = dict[tuple[str, str], dict[str, int]]
"""(topic, its log's id) -> partition -> offset."""


class PositionReporter:
    """Of one subscriber. Its thread begins with the first position."""

    def __init__(self, config: ClientConfig, name: str) -> None:
        self._connection = KeptConnection(config)
        self._name = name
        self._moved = threading.Condition()
        self._places: ToldPositions = {}
        self._is_closed = False
        self._is_over = False
        """Nobody wants to hear of it."""
        self._thread: threading.Thread | None = None

    def note(self, topic: str, topic_id: str, partition: int, offset: int) -> None:
        """It has come so far."""
        with self._moved:
            if self._is_over or self._is_closed:
                return
            self._places.setdefault((topic, topic_id), {})[str(partition)] = offset
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="report", daemon=True)
                self._thread.start()
            self._moved.notify()

    def close(self) -> None:
        """Tell the last of it, and end."""
        with self._moved:
            self._is_closed = True
            self._moved.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        next_at = 0.0
        while not self._is_over:
            with self._moved:
                while not self._is_closed and (not self._places or time.monotonic() < next_at):
                    left_s = next_at - time.monotonic()
                    self._moved.wait(left_s if self._places and left_s > 0 else None)
                places, self._places = self._places, {}
                is_last = self._is_closed
            next_at = time.monotonic() + EVERY_S
            self._tell(places, LAST_S if is_last else ANSWER_S)
            if is_last:
                break
        self._connection.close()

    def _tell(self, places: ToldPositions, timeout_s: float) -> None:
        for (topic, topic_id), offsets in places.items():
            try:
                asked = NotePositions(self._name, topic, topic_id, offsets)
                self._connection.ask(asked, timeout_s)
            except AdminError as error:
                self._fail(error, places)
                return
        self._connection.rest()

    def _fail(self, error: AdminError, places: ToldPositions) -> None:
        with self._moved:
            for log_of, offsets in places.items():
                self._places[log_of] = {**offsets, **self._places.get(log_of, {})}
        if error.code is not None and error.code not in PASSING:
            log.info("how far %r has come is not told to the cluster: %s", self._name, error)
            self._is_over = True


class ReportedPositions:
    """A file of positions, of which the cluster is told. Implements engine.PositionKeeper and
    start.StoredStarts.
    """

    def __init__(self, store: PositionStore, reporter: PositionReporter) -> None:
        self._store = store
        self._reporter = reporter
        self.get = store.get

    def put(self, topic: str, topic_id: str, partition: int, offset: int) -> None:
        """See engine.PositionKeeper."""
        self._store.put(topic, topic_id, partition, offset)
        self._reporter.note(topic, topic_id, partition, offset)

    def save(self, *, durable: bool) -> None:
        """See engine.PositionKeeper."""
        self._store.save(durable=durable)

    def close(self) -> None:
        """See engine.PositionKeeper."""
        self._reporter.close()
