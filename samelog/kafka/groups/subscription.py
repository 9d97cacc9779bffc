"""What consumers of classic groups say to each other: subscriptions and assignments.

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
            topic, place = _text(metadata, place)
            topics.add(topic)
    except (struct.error, ValueError):
        return None
    return topics if count >= 0 else None


def assigned_partitions(assignment: bytes) -> list[tuple[str, int]]:
    """(topic, partition) of what a consumer's leader gave it (ConsumerProtocolAssignment: version
    int16, array of topic and array of int32); nothing if it is something else.
    """
    found = []
    try:
        (topics,) = struct.unpack_from(">i", assignment, 2)
        place = 6
        for _ in range(topics):
            topic, place = _text(assignment, place)
            (count,) = struct.unpack_from(">i", assignment, place)
            numbers = struct.unpack_from(f">{max(0, count)}i", assignment, place + 4)
            place += 4 + 4 * len(numbers)
            found += [(topic, number) for number in numbers]
    except (struct.error, ValueError):
        return []
    return found


def _text(data: bytes, place: int) -> tuple[str, int]:
    """A text, and where it ends. Raises struct.error or ValueError."""
    (length,) = struct.unpack_from(">h", data, place)
    stop = place + 2 + length
    if length < 0 or stop > len(data):
        raise ValueError("a text that is longer than what there is")
    return data[place + 2 : stop].decode(), stop
