"""Which partition a record goes to, as Kafka's own producers decide it, so that both can write one
topic.

A key decides by murmur2 (Apache Kafka, `org.apache.kafka.common.utils.Utils.toPositive`). Records
without a key stick to one partition until it has had a batch's worth of bytes, then go on to the
next: KIP-480, but round robin instead of random. Invariant: equal keys, equal partitions, in every
Kafka client and here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samelog.format import _kernels as kernels

if TYPE_CHECKING:
    from typing_extensions import Buffer

_POSITIVE = 0x7FFFFFFF


class Partitioner:
    """Chooses the partition of each record of one topic."""

    __slots__ = ("_current", "_room_bytes", "_sticky_bytes", "partitions")

    def __init__(self, partitions: int, sticky_bytes: int) -> None:
        self.partitions = partitions
        self._sticky_bytes = sticky_bytes
        self._room_bytes = sticky_bytes
        self._current = 0

    def of_key(self, key: Buffer) -> int:
        """The partition of every record with this key."""
        return (kernels.murmur2(key) & _POSITIVE) % self.partitions

    def of_keys(self, keys: Sequence[Buffer | None], keyless: int) -> list[int]:
        """The partitions of records with these keys; of those without one, `keyless`."""
        count, hashed = self.partitions, kernels.murmur2
        return [keyless if key is None else (hashed(key) & _POSITIVE) % count for key in keys]

    def sticky(self, size_bytes: int) -> int:
        """The partition of `size_bytes` of records without a key."""
        if self._room_bytes <= 0:
            self._current = (self._current + 1) % self.partitions
            self._room_bytes = self._sticky_bytes
        self._room_bytes -= size_bytes
        return self._current
