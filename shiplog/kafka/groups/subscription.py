"""Which topics a consumer subscribes to, read from the metadata it joins a classic group with.

The metadata is the client's own (Kafka's ConsumerProtocolSubscription): version int16, then an
array of topic names; what follows is of no interest here. A group whose members write something
else simply has no known subscriptions.

Invariant: reads nothing beyond the bytes given; never raises.
"""

from __future__ import annotations

import struct

CONSUMER = "consumer"
"""The protocol type of groups of Kafka consumers."""


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """The topics; None if this is no consumer's metadata."""
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        topics, place = set(), 6
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, place)
            stop = place + 2 + length
            if length < 0 or stop > len(metadata):
                return None
            topics.add(metadata[place + 2 : stop].decode())
            place = stop
    except (struct.error, UnicodeDecodeError):
        return None
    return topics if count >= 0 else None
