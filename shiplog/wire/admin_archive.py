"""What an administrator can ask about archiving, and the answers.

Invariant: as in `shiplog.wire.admin`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from shiplog.wire.bounds import Message, Partition, Place63, ShortText, Text, Unsigned32


class PlannedArchive(NamedTuple):
    """The oldest `files` segments of a partition would go: offsets [first_offset, next_offset)."""

    topic: ShortText
    partition: Partition
    first_offset: Place63
    next_offset: Place63
    files: Unsigned32
    size_bytes: Place63
    reason: ShortText


class PlanArchive(Message, frozen=True, tag=30):
    """What would the next round of archiving do? Answered by ArchivePlan, or NotLeader."""


class ArchivePlan(Message, frozen=True, tag=30):
    """The policy that counts (empty: none), why a newer one does not, what would go, and the
    partitions of which more would go if no consumer group held it.
    """

    policy: Text
    problem: Text
    planned: tuple[PlannedArchive, ...]
    held: tuple[ShortText, ...] = ()


ArchiveRequest: TypeAlias = PlanArchive
ArchiveResponse: TypeAlias = ArchivePlan
