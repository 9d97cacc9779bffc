"""What can go wrong for a Spark query; errors name topic, partition, offsets, and a way out.

Invariant: an error of this package is a `SourceError`; what Spark shows of it is its text.
"""

from __future__ import annotations

from samelog.replicator.client_errors import TopicDeleted


class SourceError(Exception):
    """Base of the errors that the data source raises."""


class BadOption(SourceError, ValueError):
    """An option, or the schema, of a query cannot be used."""


class TopicNotFound(SourceError):
    """A topic or partition that the query names does not exist."""


class DataLoss(SourceError):
    """Records that the query was to read are not there any more, and it must not pass over that.
    `earliest`: the first offset there is, where that is known.
    """

    def __init__(self, message: str, earliest: int | None = None) -> None:
        super().__init__(message)
        self.earliest = earliest


class SourceTopicDeleted(TopicDeleted, DataLoss):
    """A topic that the query reads was deleted, and possibly created again."""

    def __init__(self, topic: str, details: str) -> None:
        super().__init__(topic, details)
        self.earliest = None


class NotReadable(SourceError):
    """The records exist, but cannot be read from here now; trying again may help."""


class NotHere(SourceError):
    """The only node that was to be asked has not got the partition: others have."""


class CorruptValue(SourceError):
    """A record's value is not what the schema says, and the query takes no such records."""


class PipelineError(SourceError):
    """A pipeline cannot be run, or has failed."""


class NoSpark(PipelineError):
    """PySpark or Java is missing on this host."""


class LakeError(PipelineError):
    """A lake cannot be read, or not be changed as was asked."""


class LakeConflict(LakeError):
    """Somebody else has changed the same files meanwhile; trying again helps."""
