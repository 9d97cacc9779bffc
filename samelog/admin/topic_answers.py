"""What is answered to changes of topics.

Invariant: as in `samelog.admin.answers`.
"""

from __future__ import annotations

from samelog.admin.answers import AdminAnswer, TopicInfo


class TopicMade(TopicInfo, frozen=True):
    """A new topic, and after how long its records are archived, by its settings and the cluster's
    policy; -1: none is for its age. `retention_from` says which of them: "topic", "policy", or
    "none" where neither does. `copies`: how many each partition is to have; 0: one on every node.
    `warnings`: what that means.
    """

    retention_ms: int = -1
    retention_from: str = ""
    copies: int = 0
    warnings: tuple[str, ...] = ()


class PartitionTruncated(AdminAnswer, frozen=True):
    """Records below `log_start` can be read no more."""

    topic: str
    partition: int
    log_start: int


class RecordsVoided(AdminAnswer, frozen=True):
    """The offsets that are void now."""

    first_offset: int
    next_offset: int
