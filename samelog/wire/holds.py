"""Messages about bytes that a publisher holds because their topic was deleted, or lost to damage.

Invariant: as that of `wire.messages`.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from samelog.wire.bounds import Message, OptionalIdentifier, Partition, Place63, ShortText

HELD_PARTS_TOLD = 256
"""In one message; the largest ones."""


class HeldPart(NamedTuple):
    """Held bytes of one partition, `topic_id` being that of the deleted topic; and how many ranges
    of its files were damaged before they were shipped.
    """

    topic: ShortText
    partition: Partition
    topic_id: OptionalIdentifier
    size_bytes: Place63
    damaged_ranges: Place63 = 0


HeldParts: TypeAlias = Annotated[tuple[HeldPart, ...], msgspec.Meta(max_length=HELD_PARTS_TOLD)]


class SessionHolds(Message, frozen=True, tag=24):
    """Of a publisher: what it holds of its session now, and what it lost to damage."""

    parts: HeldParts = ()


TopicIds: TypeAlias = Annotated[
    tuple[OptionalIdentifier, ...], msgspec.Meta(max_length=HELD_PARTS_TOLD)
]


class DecideHolds(Message, frozen=True, tag=25):
    """To a publisher: bytes that are held for these deleted topics continue into the next topics of
    the names, or are discarded.
    """

    continues: bool
    topic_ids: TopicIds


HoldMessage: TypeAlias = SessionHolds | DecideHolds
