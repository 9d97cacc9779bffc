"""How the descriptors of a process are shared out, so that connections never take those of files.

The kernel gives out the lowest free number. So a connection whose number lies in the part that is
reserved proves that all others are in use, and refusing it there keeps the reserve free: no
count is needed. nginx and HAProxy keep a reserve in the same way.
"""

from __future__ import annotations

import os
import resource
from typing import NamedTuple

PEERS_MIN = 32
REMEDY = "raise the limit of open files (LimitNOFILE= of the unit, or ulimit -Hn)"


class Descriptors(NamedTuple):
    """The limit of the process, in descriptors."""

    limit: int

    @property
    def files(self) -> int:
        """So many files the logs keep open."""
        return self.limit // 4

    @property
    def peers_below(self) -> int:
        """Connections of nodes get numbers below this one."""
        return self.limit - self.files

    @property
    def clients_below(self) -> int:
        """Connections of clients get numbers below this one."""
        return max(0, self.peers_below - max(PEERS_MIN, self.limit // 8))

    def refusal(self, descriptor: int, *, is_peer: bool = False) -> str | None:
        """Return why a connection with this number is refused, or None if it may stay. `is_peer`:
        it is a node's, or an administrator's, who looks for the cause of the shortage.
        """
        if descriptor < (self.peers_below if is_peer else self.clients_below):
            return None
        return f"the descriptors that are left, of {self.limit}, are reserved for files"


def descriptors() -> Descriptors:
    """The limit in force now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Descriptors(soft if soft != resource.RLIM_INFINITY else 1 << 30)


def shortage() -> str | None:
    """Return a message if clients are refused for lack of descriptors, or None."""
    known = descriptors()
    try:
        lowest_free = os.eventfd(0)
    except OSError:  # there is none
        lowest_free = known.limit
    else:
        os.close(lowest_free)
    problem = known.refusal(lowest_free)
    return None if problem is None else f"clients are refused: {problem}: {REMEDY}"


def open_descriptors() -> int:
    """Return how many descriptors the process has open, without the one that this call opens."""
    counted = os.stat("/proc/self/fd").st_size  # since Linux 6.2; 0 before
    return counted or len(os.listdir("/proc/self/fd")) - 1
