"""Watches a session's directories with inotify, and says how long it gathers their changes.

Invariant: without inotify every call is allowed and does nothing; its user polls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from samelog.replicator.interfaces import InputName
from samelog.runtime.inotify import DIRECTORY_CHANGED, Event, LoopInotify, Mask, open_or_warn

log = logging.getLogger(__name__)


class SessionWatch:
    """One session's share of its event loop's inotify instance."""

    def __init__(self, new_inotify: Callable[[], LoopInotify]) -> None:
        self.linger_s = 0.0
        """The shortest linger of changes that follow each other closely."""
        self.changes = 0
        """Another number whenever files may have changed since it was read last."""
        self.inputs: dict[int, InputName | None] = {}
        """Watch -> its input, or None for the session's own directory."""
        self._new_inotify = new_inotify
        self._inotify: LoopInotify | None = None

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
