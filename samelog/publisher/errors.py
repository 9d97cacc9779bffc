"""What can go wrong for a publishing application; every message says what to do about it."""

from __future__ import annotations

from samelog.replicator.client_errors import PublisherError


class PublisherClosed(PublisherError):
    """The publisher was closed, or belongs to the parent of this (forked) process."""


class BudgetExceeded(PublisherError):
    """The session's files fill their disk budget, and nothing is released yet."""


class AppendTooLarge(BudgetExceeded):
    """One append is larger than the whole disk budget."""


class DiskFull(PublisherError):
    """The file system of the session directory has no room; nothing of the append was kept."""


class NotShipping(PublisherError):
    """The call needs the cluster, and this publisher only writes local files."""


class NotMerged(PublisherError, TimeoutError):
    """Not everything appended was merged on a majority before the deadline."""


class PublishingRefused(NotMerged):
    """A majority of the nodes refuses what was appended: a grant is missing, or a quota is used up.
    It stays in the session's directory, and is shipped once they take it.
    """


class NotStaged(PublisherError):
    """A stage was not held, published or dropped: not in time, or it is refused."""


class ShippingStopped(PublisherError):
    """What is waited for will never be merged: the session forked, or its topic was deleted."""


class RecordsDamaged(PublisherError):
    """Records were damaged on disk before they were shipped; all others are merged."""


class InvalidId(PublisherError, ValueError):
    """A record's dedup number is missing, out of range, not rising, or not wanted."""
