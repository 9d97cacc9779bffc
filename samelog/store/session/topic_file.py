"""Which topic an input directory belongs to: `topic.json`, because names can be used again.

A topic that was deleted and created again has another id, and shares nothing with the old one.

Invariant: once written, the id of a directory never changes.
"""

from __future__ import annotations

import os

from samelog.store.disk.files import FileSystem
from samelog.store.disk.json_files import OtherTopic, Versioned, read_json_file, write_json_file

TOPIC_FILE = "topic.json"


class TopicFile(Versioned, frozen=True, kw_only=True):
    """The contents of topic.json."""

    topic_id: str


def read_topic_id(fs: FileSystem, directory: str, *, expected: str | None) -> str | None:
    """The directory's topic id, None if it has none yet.

    Raises:
        OtherTopic: it has one, but not the expected one.
        UnsupportedFormat, CorruptLog: topic.json cannot be read.
    """
    known = read_json_file(fs, os.path.join(directory, TOPIC_FILE), TopicFile)
    if known is None:
        return None
    if expected is not None and known.topic_id != expected:
        raise OtherTopic(directory, known.topic_id, expected)
    return known.topic_id


def bind_topic(fs: FileSystem, directory: str, topic_id: str) -> None:
    """Note durably which topic the directory belongs to. Raises OtherTopic."""
    if read_topic_id(fs, directory, expected=topic_id) is None:
        path = os.path.join(directory, TOPIC_FILE)
        write_json_file(fs, path, TopicFile(topic_id=topic_id))
