"""What can go wrong for a subscribing application; every error says what to do about it."""

from __future__ import annotations

from samelog.replicator.client_errors import SubscriberError

COPY_KEPT = (
    "its local copy is kept; to read a new topic of this name, use another directory or remove the "
    "copy"
)
"""Consequence of a deleted topic for a subscriber."""
LOCAL_COPY_KEPT = (
    "all records of its local copy were read; to read a new topic of this name, move the copy away "
    "and restart the sidecar that keeps it"
)
"""Consequence of a deleted topic for a reader of a sidecar's copy."""


class SubscriberClosed(SubscriberError):
    """The subscriber was closed."""


class UnknownTopic(SubscriberError):
    """There is no local copy of the topic, or of the partitions asked for; without `follow`: the
    cluster does not know them.
    """


class OffsetOutOfRange(SubscriberError):
    """The offset is archived, or lies beyond the end of the log. `earliest` is the first one that
    can be read; -1: not known.
    """

    def __init__(self, topic: str, partition: int, message: str, *, earliest: int = -1) -> None:
        super().__init__(
            f"{topic}-{partition}: {message}; seek to one that is there, or set auto_offset_reset "
            "to 'earliest' or 'latest'"
        )
        self.topic, self.partition, self.earliest = topic, partition, earliest


class OffsetNotHere(OffsetOutOfRange):
    """The same, found in the local files: offsets [earliest, end) can be read."""

    def __init__(self, topic: str, partition: int, offset: int, earliest: int, end: int) -> None:
        where = "archived" if offset < earliest else "beyond the end"
        super().__init__(
            topic,
            partition,
            f"offset {offset} is {where}: the earliest available is {earliest}, the end is {end}",
            earliest=earliest,
        )
        self.offset, self.end = offset, end


class UnreadableRecord(SubscriberError):
    """A record cannot be read as a row of the reader's version of its topic's schema."""

    def __init__(self, topic: str, partition: int, offset: int, problem: str) -> None:
        super().__init__(
            f"{topic}-{partition}: {problem}; seek behind it, or set corrupt to 'skip'"
        )
        self.topic, self.partition, self.offset = topic, partition, offset


class NotCaughtUp(SubscriberError, TimeoutError):
    """The end of the log was not reached before the deadline."""


class CopyStopped(SubscriberError):
    """The local copy cannot be kept up to date any more; what it holds can still be read."""


class LogReset(SubscriberError):
    """The cluster restarted the topic's log (a hard reset): offsets mean other records now. All
    records in the local copy of the old log were handed out.
    """

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(
            f"the log of {topic}-{partition} was restarted by a hard reset of the cluster, and "
            "old offsets mean nothing any more; set auto_offset_reset to 'earliest' or 'latest' to "
            "start over (the copy of the old log is set aside)"
        )
        self.topic, self.partition = topic, partition


class GroupRefused(SubscriberError):
    """The coordinator does not take the subscriber into its group: a right is missing, or the group
    has Kafka consumers.
    """


class NotCommitted(SubscriberError):
    """It is not known that a group's positions are committed; what they cover may come again."""


class PositionLost(SubscriberError):
    """Another member of the group has the partition: what was begun in it is not to be kept."""


class TopicsNotKnown(SubscriberError):
    """No node has said which topics there are, so what a pattern means is not known."""
