"""Logs that a full disk keeps durable marks from being saved, and that they are saved again.

Invariant: a series of failed attempts is one line, and its end is another.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from samelog.runtime.log import log_event
from samelog.store.disk.disk_errors import NoSpace

log = logging.getLogger(__name__)


class RoomForMarks:
    """What one replica's logs lack."""

    def __init__(self) -> None:
        self._lacking: set[str] = set()
        """The kinds of logs whose last attempt failed."""

    @contextmanager
    def attempt(self, kind: str) -> Iterator[None]:
        """Run an attempt to save marks of a kind of logs; a lack of room ends it."""
        try:
            yield
        except NoSpace as fault:
            if kind not in self._lacking:
                self._lacking.add(kind)
                log_event(log, logging.WARNING, "durable marks not saved", logs=kind, error=fault)
        else:
            if kind in self._lacking:
                self._lacking.remove(kind)
                log_event(log, logging.INFO, "durable marks saved again", logs=kind)
