"""Watches a session's directories with inotify, and times what is shipped of their changes, so that
the linger follows the load.

Invariant: without inotify every call is allowed and does nothing; its user polls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from samelog.replicator.interfaces import InputName, RollByte
from samelog.runtime.inotify import DIRECTORY_CHANGED, Event, LoopInotify, Mask, open_or_warn

log = logging.getLogger(__name__)

ROUND_TRIP_MAX_S = 1.0
"""After so long without its acknowledgement, a round trip counts as slow, and another is timed."""


class _Timed(NamedTuple):
    """The round trip that is timed: bytes that were read at a time, up to a place."""

    run: int
    name: InputName
    end: RollByte
    at: float


class SessionWatch:
    """One session's share of its event loop's inotify instance."""

    def __init__(self, new_inotify: Callable[[], LoopInotify]) -> None:
        self.linger_s = 0.0
        """The shortest linger of changes that follow each other closely."""
        self.inputs: dict[int, InputName | None] = {}
        """Watch -> its input, or None for the session's own directory."""
        self._new_inotify = new_inotify
        self._inotify: LoopInotify | None = None
        self._timed: _Timed | None = None

    @property
    def is_on(self) -> bool:
        """Whether changes are noticed at once."""
        return self._inotify is not None

    def start(self, on_events: Callable[[list[Event]], None]) -> None:
        """Watch from now on what is added."""
        self._inotify = open_or_warn(self._new_inotify)
        if self._inotify is not None:
            self.linger_for(self.linger_s)
            self._inotify.attach(asyncio.get_running_loop(), on_events)

    def add(self, path: str, name: InputName | None) -> None:
        """Watch the directory of an input, or of the session."""
        if self._inotify is None:
            return
        try:
            mask = DIRECTORY_CHANGED | Mask.DELETE
            if name is not None:  # a writer that dies closes its files
                mask |= Mask.CLOSE_WRITE
            self.inputs[self._inotify.add(path, mask)] = name
        except OSError as error:
            log.warning("%s is polled, not watched: %s", path, error)

    def close(self) -> None:
        """Stop watching."""
        if self._inotify is not None:
            self._inotify.close()

    # --- the linger ---------------------------------------------------------------------------

    def linger_for(self, shortest_s: float) -> None:
        """Gather changes that follow each other closely at least so long; sessions that share an
        event loop share the linger, and the last call counts.
        """
        self.linger_s = shortest_s
        if self._inotify is not None and self._inotify.linger.shortest_s != shortest_s:
            self._inotify.linger.limit(shortest_s)

    def hurry(self) -> None:
        """Report changes that are being gathered at once: something waits for them."""
        if self._inotify is not None:
            self._inotify.hurry()

    def shipped(self, run: int, name: InputName, end: RollByte) -> None:
        """What an input has up to there is being shipped: time it, unless something is timed."""
        now = asyncio.get_running_loop().time()
        if self._timed is not None and now - self._timed.at > ROUND_TRIP_MAX_S:
            self._end_round_trip(self._timed, now)
        if self._timed is None:
            self._timed = _Timed(run, name, end, now)

    def acknowledged(self, run: int, name: InputName, place: RollByte) -> None:
        """The cluster has committed an input up to a place."""
        timed = self._timed
        if timed is not None and (timed.run, timed.name) == (run, name) and place >= timed.end:
            self._end_round_trip(timed, asyncio.get_running_loop().time())

    def _end_round_trip(self, timed: _Timed, now: float) -> None:
        self._timed = None
        if self._inotify is not None:
            self._inotify.linger.round_trip(now - timed.at)
