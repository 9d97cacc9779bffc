"""Where the copies of merged partitions are in a subscriber's directory."""

from __future__ import annotations

import os

from samelog.format.errors import CorruptLog
from samelog.store.disk.files import FileSystem, NoSuchFile
from samelog.store.disk.json_files import read_json_file
from samelog.store.merged.names import PARTITION_FILE
from samelog.store.merged.partition_file import PartitionFile
from samelog.store.session.directory import input_name, parse_input_name


def copy_path(directory: str, topic: str, partition: int) -> str:
    """Where a copy is."""
    return os.path.join(directory, input_name(topic, partition))


def find_copies(fs: FileSystem, directory: str, topic: str) -> list[tuple[str, str, int]]:
    """(topic, topic id, partition) of the copies of a topic that are there.

    Raises LogFormatError when one of them cannot be read.
    """
    found = []
    for name in fs.list_directory(directory):
        parsed = parse_input_name(name)
        if parsed is None or parsed[0] != topic:
            continue
        path = os.path.join(directory, name, PARTITION_FILE)
        whose = read_json_file(fs, path, PartitionFile)
        if whose is None:
            raise NoSuchFile(f"{path} is not there; remove the directory, or restore the file")
        if (whose.topic, whose.partition) != parsed:
            raise CorruptLog(path, 0, f"belongs to {whose.topic}-{whose.partition}")
        found.append((topic, whose.topic_id, parsed[1]))
    return found
