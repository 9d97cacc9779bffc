"""Waits for room on the disk, for a Raft group whose save found none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from samelog.runtime.log import log_event
from samelog.store.disk.disk_errors import NoSpace

log = logging.getLogger(__name__)

RETRY_S = 0.25
"""A write that found no room is tried again so often, when nothing else happens."""


class WriteRoom:
    """Of one group. To be used in its event loop only."""

    def __init__(self, try_again: Callable[[], None]) -> None:
        """`try_again`: called when the write may succeed."""
        self._try_again = try_again
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, fault: NoSpace) -> None:
        """There is no room: try again in a while."""
        if self._timer is None:
            log_event(log, logging.ERROR, "takes no part until there is room", error=fault)
        else:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)

    def found(self) -> None:
        """The write has succeeded."""
        log_event(log, logging.WARNING, "takes part again: there is room")
        self.cancel()

    def cancel(self) -> None:
        """Try no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
