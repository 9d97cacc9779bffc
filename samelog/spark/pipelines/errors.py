"""What can go wrong for a pipeline; the text names thing, reason and remedy.

Invariant: as in `samelog.spark.errors`.
"""

from __future__ import annotations

from samelog.spark.errors import SourceError


class PipelineError(SourceError):
    """A pipeline cannot be run, or has failed."""


class NoSpark(PipelineError):
    """What Spark needs is not installed here."""


class LakeError(PipelineError):
    """A lake cannot be read, or not be changed as was asked."""


class LakeConflict(LakeError):
    """Somebody else has changed the same files meanwhile; trying again helps."""
