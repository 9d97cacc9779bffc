"""What can be wrong with a mirror.

Invariant: what a `MirrorStopped` says does not pass by itself; what a `SourceUnreadable` says may.
"""

from __future__ import annotations


class MirrorError(Exception):
    """Base of what can be wrong."""


class SourceUnreadable(MirrorError):
    """The source cannot be read now."""


class DestinationFault(MirrorError):
    """The destination takes nothing now."""


class MirrorStopped(MirrorError):
    """A topic is mirrored no further before somebody has looked at it."""


class BatchRefused(MirrorError):
    """The destination cannot store a batch of the source, from one offset up to another."""

    def __init__(self, base_offset: int, next_offset: int, reason: str) -> None:
        super().__init__(f"the batch at offset {base_offset} cannot be held: {reason}")
        self.base_offset, self.next_offset = base_offset, next_offset


class NotFollowing(MirrorError):
    """Records were sent and did not become the mirror's: the partition is examined again."""
