"""Where each thing of the replicated state has its newest record in the topics that are generated
from it, `__consumer_offsets` and `__transaction_state` (kafka-state-topics.md).

A *feed* is one partition of such a topic. Whatever changes something gives it the next offset of
its feed: so offsets are replicated state, as what they tell is, and there is one record for each
thing, as in a compacted log. What a record holds is read from the state when somebody asks, and
takes no room here. Of what is gone a tombstone is told, of the newest ones.

Invariant: an offset of a feed is given once, to one change of one thing; what it tells never
changes, but that a newer record of the same thing takes its place.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import StrEnum
from functools import cached_property, lru_cache

import msgspec

PARTITIONS = 50
"""As many as Kafka's topics of these names have."""
TOMBSTONES_KEPT = 1000
"""In each feed: a reader that is further behind starts over, as after `delete.retention.ms`."""
ITSELF = 0
"""In place of a partition's number, which counts from 1: a group, or a transactional id, itself."""
STATE_NUMBERS = 0xFFFF_FF00
"""Where their numbers of partitions begin: no other partition ever gets so far."""
_HASHED_MAX = 4096

Key = tuple[str, int]
"""(group, partition number), (group, ITSELF), or (transactional id, ITSELF)."""


class StateTopic(StrEnum):
    """The topics that are generated."""

    OFFSETS = "__consumer_offsets"
    TRANSACTIONS = "__transaction_state"


RESERVED_NAMES = frozenset(map(str, StateTopic))


class Tombstone(msgspec.Struct, frozen=True, array_like=True):
    """What is gone, in words that outlive it: the partition of a committed offset by its topic's
    name and index, the latter -1 if it is the group or the transactional id that is gone. `at_ms`:
    of the newest that was told before.
    """

    offset: int
    at_ms: int
    name: str
    topic: str = ""
    index: int = -1


class Feed(msgspec.Struct):
    """One partition of a generated topic."""

    next_offset: int = 0
    newest: dict[Key, int] = {}
    """Everything there is -> the offset of its record, in the order of these."""
    gone: list[Tombstone] = []
    """In the order of their offsets."""
    at_ms: int = -1
    """The highest time of what was told: commands that delete have none."""

    def changed(self, key: Key, at_ms: int) -> None:
        """Something is new, or another, since then."""
        self.newest.pop(key, None)
        self.newest[key] = self._next()
        self.at_ms = max(self.at_ms, at_ms)

    def deleted(self, key: Key, topic: str = "", index: int = -1) -> None:
        """Something is gone, if it was ever told."""
        if self.newest.pop(key, None) is not None:
            self.gone.append(Tombstone(self._next(), self.at_ms, key[0], topic, index))
            del self.gone[:-TOMBSTONES_KEPT]

    def _next(self) -> int:
        self.next_offset += 1
        return self.next_offset - 1


class Feeds(msgspec.Struct, dict=True):
    """All of them. One that nothing was ever told in is not there."""

    offsets: dict[int, Feed] = {}
    transactions: dict[int, Feed] = {}

    @cached_property
    def listeners(self) -> list[Callable[[], None]]:
        """Of readers; snapshots do not have them."""
        return []

    def moved(self) -> None:
        """Notify readers: there may be more to read."""
        for listener in self.listeners:
            listener()

    def of(self, topic: StateTopic) -> dict[int, Feed]:
        """The feeds of a topic, by partition."""
        return self.offsets if topic is StateTopic.OFFSETS else self.transactions

    def feed(self, topic: StateTopic, name: str) -> Feed:
        """The one that tells of a group, or a transactional id."""
        feeds, partition = self.of(topic), partition_for(name)
        found = feeds.get(partition)
        if found is None:
            found = feeds[partition] = Feed()
        return found


@lru_cache(_HASHED_MAX)
def partition_for(name: str) -> int:
    """The partition that tells of a group, or a transactional id, as Kafka's brokers choose it:
    Java's hash of the text, without its sign.
    """
    value = 0
    for (unit,) in struct.iter_unpack(">H", name.encode("utf-16-be", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed) % PARTITIONS
