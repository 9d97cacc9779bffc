"""How much a node may still take in: what its disk has left, but for Raft's own files.

Invariant: what was accepted can be merged, because its room is counted twice; nothing is accepted
while the intake is stopped; copies of merged bytes end before they take what is Raft's.
"""

from __future__ import annotations

import logging

from samelog.replicator.interfaces import RequestRefused
from samelog.wire.errors import FaultCode

log = logging.getLogger(__name__)

FREE_SPACE = "free space on this node"
_FULL = "the disk is full, but for Raft's own files"


class Room:
    """One node's room, and why there is none any more."""

    def __init__(self) -> None:
        self.stopped: str | None = None
        self._for_good = False
        self._bytes = 0
        """For what is not accepted yet, session and merged logs together."""
        self._free = 0
        """For all that is written, what was promised included."""

    def stop(self, reason: str, *, for_good: bool = False) -> None:
        """Take nothing in: the disk is full, or failing (`for_good`)."""
        if self.stopped is None or (for_good and not self._for_good):
            self.stopped = reason
            self._for_good = for_good
            log.error("intake stopped: %s", reason)

    def set(self, free_bytes: int, *, promised_bytes: int, resume_at_bytes: int) -> None:
        """How many bytes the disk still takes, those included that are promised to what is accepted
        and not merged. What was stopped resumes only at `resume_at_bytes`, so as not to start and
        stop all the time.
        """
        room_bytes = free_bytes - promised_bytes
        self._bytes, self._free = room_bytes, free_bytes
        if room_bytes <= 0:
            self.stop(_FULL)
        elif self.stopped is not None and not self._for_good and room_bytes >= resume_at_bytes:
            log.warning("intake resumed")
            self.stopped = None

    def has(self, size: int) -> bool:
        """Whether so much is left for what is not accepted."""
        return self.stopped is None and self._bytes >= size

    def take_copy(self, size: int) -> bool:
        """Take room for merged bytes that are copied; False: there is none, or nothing is taken in.
        Their instructions may be counted already as accepted and not merged, but need not be.
        """
        if self.stopped is not None or self._free < size:
            return False
        self._free -= size
        return True

    def use(self, size: int) -> None:
        """What is accepted is written twice: here, and to the merged log. Raises RequestRefused."""
        self._bytes -= 2 * size
        self._free -= 2 * size
        if self._bytes <= 0:
            self.stop(_FULL)
            raise RequestRefused(
                FaultCode.DISK_FULL, f"intake is stopped: {self.stopped}", FREE_SPACE
            )
