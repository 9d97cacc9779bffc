"""What a Raft group does when the disk has no room for what its core wants saved: it waits.

Invariant: effects that found no room are written before any later ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from samelog.consensus import Effects
from samelog.runtime.log import log_event
from samelog.store.disk.disk_errors import NoSpace

log = logging.getLogger(__name__)

RETRY_S = 0.25
"""A write that found no room is tried again so often, when nothing else happens."""


class WriteRoom:
    """Of one group. To be used in its event loop only."""

    def __init__(self, try_again: Callable[[], None]) -> None:
        """`try_again`: called when the write may succeed."""
        self.unwritten: Effects | None = None
        """Found no room; everything after them waits, too."""
        self._try_again = try_again
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, effects: Effects, fault: NoSpace) -> None:
        """These could not be written: `try_again` is called in a while."""
        if self.unwritten is None:
            log_event(log, logging.ERROR, "takes no part until there is room", error=fault)
        self.unwritten = effects
        self.cancel()
        self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)

    def found(self) -> None:
        """They are written."""
        self.unwritten = None
        log_event(log, logging.WARNING, "takes part again: there is room")

    def cancel(self) -> None:
        """Try no more by itself."""
        if self._timer is not None:
            self._timer.cancel()
