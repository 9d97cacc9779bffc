"""A lag exporter as programs of Kafka's world have it: it reads `__consumer_offsets` by itself,
with a usual Kafka client, and knows nothing of samelog.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from tests.patience import PATIENCE_S

TOPIC = "__consumer_offsets"
OFFSET_KEYS = (0, 1)


class Committed(NamedTuple):
    """Of whom, and of what."""

    group: str
    topic: str
    partition: int


@dataclass
class Reading:
    """What is left of a key or a value."""

    data: bytes
    at: int = 0

    def number(self, form: str) -> int:
        """The next number, in struct's words."""
        (found,) = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return int(found)

    def text(self) -> str:
        """The next string."""
        length = self.number("h")
        self.at += length
        return self.data[self.at - length : self.at].decode()


class LagExporter:
    """Follows the topic, all of its partitions, without a group of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.committed: dict[Committed, int] = {}
        self.groups: dict[str, tuple[int, list[str]]] = {}
        """Group -> its generation, and its members."""
        self.places: list[tuple[int, int]] = []
        """(partition, offset) of everything that came, in order."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "not used",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5000,
                "check.crcs": True,
            }
        )
        known = self._consumer.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions
        self._consumer.assign([TopicPartition(TOPIC, each, OFFSET_BEGINNING) for each in known])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def follow(self, seconds: float = 0.5) -> None:
        """Take what is there, and what comes within the time."""
        for message in self._messages(seconds):
            self._take(message)

    def lag(self, wanted: Committed) -> int | None:
        """How many records a group has yet to read; None if it has committed nothing there."""
        committed = self.committed.get(wanted)
        if committed is None:
            return None
        place = TopicPartition(wanted.topic, wanted.partition)
        _, end = self._consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
        return int(end) - committed

    def _messages(self, seconds: float) -> Iterator[Message]:
        while (message := self._consumer.poll(seconds)) is not None:
            if message.error() is None:
                yield message

    def _take(self, message: Message) -> None:
        partition, offset, key = message.partition(), message.offset(), message.key()
        assert partition is not None
        assert offset is not None
        assert key is not None
        self.places.append((partition, offset))
        read = Reading(bytes(key))
        if read.number("h") in OFFSET_KEYS:
            self._take_offset(Committed(read.text(), read.text(), read.number("i")), message)
        else:
            self._take_group(read.text(), message)

    def _take_offset(self, key: Committed, message: Message) -> None:
        value = message.value()
        if value is None:
            self.committed.pop(key, None)
            return
        read = Reading(bytes(value))
        read.number("h")
        self.committed[key] = read.number("q")

    def _take_group(self, group: str, message: Message) -> None:
        value = message.value()
        if value is None:
            self.groups.pop(group, None)
            return
        read = Reading(bytes(value))
        read.number("h")
        read.text()
        generation = read.number("i")
        self.groups[group] = generation, list(self._members(read))

    def _members(self, read: Reading) -> Iterator[str]:
        for _ in range(2):  # protocol and leader may be null
            length = read.number("h")
            read.at += max(0, length)
        read.number("q")
        for _ in range(read.number("i")):
            yield read.text()
            for is_text in (True, True, True, False, False):
                size = read.number("h" if is_text else "i")
                read.at += max(0, size) if is_text else 0
            for _ in range(2):
                read.at += read.number("i")
