"""Where a named subscriber goes on after a restart: one small JSON file, replaced whole.

A stored position is the next offset to hand out, per topic and partition, with the topic's id
beside it: a topic that was deleted and created again shares nothing with the old one, so its
position does not count. Invariant: the file holds either the old positions or the new ones.
"""

from __future__ import annotations

import os
from typing import ClassVar

import msgspec

from samelog.format.directory_files import Versioned
from samelog.format.names import check_session_name
from samelog.store.disk.files import FileSystem
from samelog.store.disk.json_files import read_json_file, write_json_file


class TopicPositions(msgspec.Struct):
    """The next offset of each partition (by decimal number, as JSON has only text keys)."""

    topic_id: str
    partitions: dict[str, int]


class StoredPositions(Versioned, frozen=True, kw_only=True):
    """The whole file."""

    remedy: ClassVar[str] = "restore it; or rename it, and the subscriber begins where `start` says"
    name: str
    topics: dict[str, TopicPositions]


class PositionStore:
    """The stored positions of one named subscriber, under `<directory>/positions/<name>.json`.

    Making one raises InvalidName; UnsupportedFormat, CorruptLog when the file cannot be read.
    """

    def __init__(self, file_system: FileSystem, directory: str, name: str) -> None:
        self._file_system = file_system
        self._folder = os.path.join(directory, "positions")
        self._path = os.path.join(self._folder, f"{check_session_name(name)}.json")
        self._stored = self._load(name)

    def get(self, topic: str, topic_id: str, partition: int) -> int | None:
        """The stored next offset, None if there is none for this very topic."""
        known = self._stored.topics.get(topic)
        if known is None or known.topic_id != topic_id:
            return None
        return known.partitions.get(str(partition))

    def put(self, topic: str, topic_id: str, partition: int, offset: int) -> None:
        """Note a position; `save` makes it last."""
        known = self._stored.topics.get(topic)
        if known is None or known.topic_id != topic_id:
            known = self._stored.topics[topic] = TopicPositions(topic_id, {})
        known.partitions[str(partition)] = offset

    def save(self, *, durable: bool) -> None:
        """Replace the file; `durable` also waits for the disk. Raises DiskFault."""
        if not self._file_system.exists(self._folder):
            os.makedirs(os.path.dirname(self._folder), mode=0o700, exist_ok=True)
            self._file_system.make_directory(self._folder)
        write_json_file(self._file_system, self._path, self._stored, durable=durable)

    def close(self) -> None:
        """Nothing is open."""

    def _load(self, name: str) -> StoredPositions:
        stored = read_json_file(self._file_system, self._path, StoredPositions)
        return StoredPositions(name=name, topics={}) if stored is None else stored
