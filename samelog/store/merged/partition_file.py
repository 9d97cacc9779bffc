"""Whose a merged directory is, and where it begins: `partition.json`.

Invariant: the file is durable before the first segment; the topic id of a directory never changes.
"""

from __future__ import annotations

import os

from samelog.format.errors import CorruptLog, UnsupportedFormat
from samelog.store.disk.files import FileSystem, NoSuchFile, make_surely
from samelog.store.disk.json_files import OtherTopic, Versioned, read_json_file, write_json_file
from samelog.store.merged.names import PARTITION_FILE, segment_bases


class PartitionFile(Versioned, frozen=True, kw_only=True):
    """The contents of partition.json."""

    topic: str
    topic_id: str
    partition: int
    start_offset: int = 0
    """Where this copy begins: behind what is archived, or where a subscriber wanted it."""
    start_checksum: int = 0
    """The running checksum there."""
    log_start: int = 0
    """Records below this offset are archived."""


def read_partition_topic(fs: FileSystem, directory: str) -> str | None:
    """The topic id that a directory belongs to, None if nobody's. Raises as `claim`."""
    known = read_json_file(fs, os.path.join(directory, PARTITION_FILE), PartitionFile)
    return None if known is None else known.topic_id


def claim(
    fs: FileSystem, directory: str, wanted: PartitionFile, *, read_only: bool
) -> PartitionFile:
    """What partition.json says; it is written if the directory is new.

    Raises:
        OtherTopic: the directory belongs to another topic id.
        UnsupportedFormat: it is another partition's, or of another version of the format.
        NoSuchFile: there is none (`read_only`).
        CorruptLog: it is unreadable, or missing beside segments.
    """
    path = os.path.join(directory, PARTITION_FILE)
    if not read_only:
        make_surely(fs, directory)
    known = read_json_file(fs, path, PartitionFile)
    if known is None:
        return _write_first(fs, directory, wanted, read_only=read_only)
    if known.topic_id != wanted.topic_id:
        raise OtherTopic(directory, known.topic_id, wanted.topic_id)
    if (known.topic, known.partition) != (wanted.topic, wanted.partition):
        raise UnsupportedFormat(f"{directory} belongs to {known.topic}-{known.partition}")
    return known


def _write_first(
    fs: FileSystem, directory: str, wanted: PartitionFile, *, read_only: bool
) -> PartitionFile:
    path = os.path.join(directory, PARTITION_FILE)
    if read_only:
        raise NoSuchFile(f"{path} is not there")
    if segment_bases(fs.list_directory(directory)):
        raise CorruptLog(path, 0, "is missing beside segments; restore it")
    write_partition_file(fs, directory, wanted)
    return wanted


def write_partition_file(fs: FileSystem, directory: str, whose: PartitionFile) -> None:
    """Write or replace partition.json, durably. Raises DiskFault."""
    write_json_file(fs, os.path.join(directory, PARTITION_FILE), whose)
