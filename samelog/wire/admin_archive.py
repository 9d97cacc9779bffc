"""What an administrator can ask about archiving, and the answers.

Invariant: as in `samelog.wire.admin`.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

from msgspec import Meta

from samelog.wire.bounds import (
    MAX_UNSIGNED_32,
    Message,
    Partition,
    Place63,
    ShortText,
    Signed64,
    Text,
    Unsigned32,
)


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


class CopyState(NamedTuple):
    """Copying before archiving, as the leader does it: to where (empty: nowhere), how many segments
    it has copied since it was started, how many wait; the file that is being copied (empty: none)
    and how many of how many bytes were read; and why copying waits, until it is tried again.
    """

    target: Text = ""
    copied: Unsigned32 = 0
    waiting: Unsigned32 = 0
    file: Text = ""
    done_bytes: Place63 = 0
    total_bytes: Place63 = 0
    problem: Text = ""


class ArchivePlan(Message, frozen=True, tag=30):
    """The policy that counts (empty: none), why a newer one does not, what would go, the partitions
    of which more would go if no consumer group held it, and the nodes that have another policy.
    """

    policy: Text
    problem: Text
    planned: tuple[PlannedArchive, ...]
    held: tuple[ShortText, ...] = ()
    copies: CopyState = CopyState()
    differing: tuple[ShortText, ...] = ()


class LogFile(NamedTuple):
    """One file of a merged log, offsets [first_offset, next_offset). Times in ms, -1: none, or not
    known; `archived_ms` -1: it is there. `size_bytes`: before it was archived; `sha256` (hex): of a
    sealed one, soon after its roll; `reason`: of an archived one. `copied_ms` -1: it has no copy;
    else its copies in `copy_formats` (as in `segments,parquet`) are at `copy_url`.
    """

    topic: ShortText
    partition: Partition
    first_offset: Place63
    next_offset: Place63
    first_ms: Signed64
    last_ms: Signed64
    size_bytes: Place63
    rolled_ms: Signed64
    archived_ms: Signed64
    sha256: ShortText
    reason: ShortText
    copied_ms: Signed64 = -1
    copy_url: Text = ""
    copy_formats: ShortText = ""


class LogHistory(Message, frozen=True, tag=31):
    """The files of a topic (empty: of all), of one partition (-1: of all), from this place on, in
    order. Answered by LogHistoryPage.
    """

    topic: ShortText = ""
    partition: Annotated[int, Meta(ge=-1, le=MAX_UNSIGNED_32)] = -1
    from_topic: ShortText = ""
    from_partition: Partition = 0
    from_offset: Place63 = 0


class LogHistoryPage(Message, frozen=True, tag=31):
    """Some of the files; `more`: ask again from behind the last one."""

    files: tuple[LogFile, ...]
    more: bool


ArchiveRequest: TypeAlias = PlanArchive | LogHistory
ArchiveResponse: TypeAlias = ArchivePlan | LogHistoryPage
