"""Kafka's consumer protocol: what members of classic groups tell each other through the broker.

Brokers pass these bytes on unread; samelog reads them to tell which partitions a group uses. Both
begin with a version (int16) and an array of topics. Later fields are ignored.

Invariant: reads nothing beyond the bytes given, and never raises.
"""

from __future__ import annotations

import struct

CONSUMER = "consumer"
"""The protocol type of groups of Kafka consumers."""


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """Return the topics of a ConsumerProtocolSubscription, or None if the bytes are none."""
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        topics, place = set(), 6
        for _ in range(count):
            topic, place = _text(metadata, place)
            topics.add(topic)
    except (struct.error, ValueError):
        return None
    return topics if count >= 0 else None


def assigned_partitions(assignment: bytes) -> list[tuple[str, tuple[int, ...]]]:
    """Return (topic, partitions) of a ConsumerProtocolAssignment; none if the bytes are invalid."""
    found = []
    try:
        (topics,) = struct.unpack_from(">i", assignment, 2)
        place = 6
        for _ in range(topics):
            topic, place = _text(assignment, place)
            (count,) = struct.unpack_from(">i", assignment, place)
            numbers = struct.unpack_from(f">{max(0, count)}i", assignment, place + 4)
            place += 4 + 4 * len(numbers)
            found.append((topic, numbers))
    except (struct.error, ValueError):
        return []
    return found


def _text(data: bytes, place: int) -> tuple[str, int]:
    """Return a text and the position behind it. Raises struct.error or ValueError."""
    (length,) = struct.unpack_from(">h", data, place)
    stop = place + 2 + length
    if length < 0 or stop > len(data):
        raise ValueError("a text that is longer than the bytes")
    return data[place + 2 : stop].decode(), stop
