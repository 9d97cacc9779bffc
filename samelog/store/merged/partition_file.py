"""Which partition a merged directory belongs to, and where its log begins: `partition.json`.

Marks repeat what it says, so that it can be made again if it is damaged.

Invariant: the file is durable before the first segment; the topic id of a directory never changes.
"""

from __future__ import annotations

import logging
import os

from samelog.format.directory_files import PartitionFile, RowsFile
from samelog.format.errors import CorruptLog, OtherTopic, UnsupportedFormat
from samelog.format.file_names import (
    MARKS_FILE,
    PARTITION_FILE,
    ROWS_FILE,
    input_name,
    parse_input_name,
    segment_bases,
)
from samelog.format.marks import MergedMarks
from samelog.store.disk.directories import make_durable_directory
from samelog.store.disk.dirty_files import read_marks
from samelog.store.disk.files import FileSystem, NoSuchFile
from samelog.store.disk.json_files import LIMIT_BYTES, read_json_file, write_json_file

log = logging.getLogger(__name__)


def read_whose(fs: FileSystem, directory: str) -> PartitionFile | None:
    """Whose a directory is: a log's, or a RowsFile; None if nobody's. Raises as `claim`."""
    return _read(fs, directory)[0]


def _read(fs: FileSystem, directory: str) -> tuple[PartitionFile | None, bool]:
    """The same, and whether only the marks say so. Raises as `claim`."""
    path = os.path.join(directory, PARTITION_FILE)
    try:
        known = read_json_file(fs, path, PartitionFile)
    except CorruptLog as damage:
        fs.read_file(path, LIMIT_BYTES)  # a link or a device is refused
        if (known := _from_marks(fs, path, damage.reason)) is None:
            raise
        return known, True
    known = known or read_json_file(fs, os.path.join(directory, ROWS_FILE), RowsFile)
    if known is not None or not fs.exists(directory):
        return known, False
    if segment_bases(fs.list_directory(directory)):
        known = _from_marks(fs, path, "the file is missing")
    return known, known is not None


def _from_marks(fs: FileSystem, path: str, reason: str) -> PartitionFile | None:
    """What the marks repeat of a damaged or missing partition.json."""
    marks = read_marks(fs, os.path.dirname(path), MergedMarks)
    if marks is None or marks.whose is None:
        return None
    log.error("%s: %s; %s beside it repeats its contents", path, reason, MARKS_FILE)
    return marks.whose


def read_partition_topic(fs: FileSystem, directory: str) -> str | None:
    """The topic id that a directory belongs to, None if nobody's. Raises as `claim`."""
    known = read_whose(fs, directory)
    return None if known is None else known.topic_id


def read_partition_owner(fs: FileSystem, directory: str) -> str | None:
    """The owner of a directory, as `TopicDirs` has it, None if nobody's. Raises as `claim`."""
    known = read_whose(fs, directory)
    return None if known is None else known.owner


def check_kind(directory: str, known: PartitionFile, wanted: RowsFile | None) -> None:
    """Raises UnsupportedFormat, unless a directory has what is wanted: what passed this filter, or
    (None) the log.
    """
    if isinstance(known, RowsFile):
        what = f"what passed the filter {known.where!r}, columns {list(known.columns)}, of version "
        what += f"{known.version}"
    else:
        what = "the log"
    is_same = wanted.filter == known.filter if isinstance(known, RowsFile) and wanted else False
    if not is_same and (wanted is not None or isinstance(known, RowsFile)):
        raise UnsupportedFormat(f"{directory} has {what}, and nothing else: take another directory")


def claim(
    fs: FileSystem, directory: str, wanted: PartitionFile, *, read_only: bool
) -> PartitionFile:
    """What partition.json says, or rows.json; it is written if the directory is new.

    Raises:
        OtherTopic: the directory belongs to another topic id, or another stay in the group.
        UnsupportedFormat: it is another partition's, another filter's, or of another version of the
            format.
        NoSuchFile: there is none (`read_only`).
        CorruptLog: it is unreadable, or missing beside segments.
    """
    if not read_only:
        make_durable_directory(fs, directory)
    known, is_lost = _read(fs, directory)
    if known is None:
        return _write_first(fs, directory, wanted, read_only=read_only)
    check_kind(directory, known, wanted if isinstance(wanted, RowsFile) else None)
    if known.owner != wanted.owner:
        raise OtherTopic(directory, known.owner, wanted.owner)
    if (known.topic, known.partition) != (wanted.topic, wanted.partition):
        raise UnsupportedFormat(f"{directory} belongs to {known.topic}-{known.partition}")
    if is_lost and not read_only:
        write_partition_file(fs, directory, known)
    return known


def _write_first(
    fs: FileSystem, directory: str, wanted: PartitionFile, *, read_only: bool
) -> PartitionFile:
    path = _path(directory, wanted)
    if read_only:
        raise NoSuchFile(f"{path} is not there")
    if segment_bases(fs.list_directory(directory)):
        raise CorruptLog(path, 0, "is missing beside segments; restore it")
    write_partition_file(fs, directory, wanted)
    return wanted


def _path(directory: str, whose: PartitionFile) -> str:
    return os.path.join(directory, ROWS_FILE if isinstance(whose, RowsFile) else PARTITION_FILE)


def write_partition_file(fs: FileSystem, directory: str, whose: PartitionFile) -> None:
    """Write or replace partition.json, or rows.json, durably. Raises DiskFault."""
    write_json_file(fs, _path(directory, whose), whose)


def copy_path(directory: str, topic: str, partition: int) -> str:
    """Where a subscriber's directory has its copy of a partition."""
    return os.path.join(directory, input_name(topic, partition))


def find_partition_directories(
    fs: FileSystem, directory: str, topic: str, rows: RowsFile | None = None
) -> list[tuple[str, str, int]]:
    """(topic, topic id, partition) of the copies of a topic in a subscriber's directory. `rows`: of
    what passed a filter, instead. A directory without segments whose partition.json was never
    written, because the process ended or the disk was full, holds no copy yet.

    Raises LogFormatError when one of them cannot be read.
    """
    found = []
    for name in fs.list_directory(directory):
        parsed = parse_input_name(name)
        if parsed is None or parsed[0] != topic:
            continue
        place = os.path.join(directory, name)
        whose, path = read_whose(fs, place), os.path.join(place, PARTITION_FILE)
        if whose is None and not segment_bases(fs.list_directory(place)):
            continue
        if whose is None:
            raise NoSuchFile(f"{path} is not there; remove the directory, or restore the file")
        if (whose.topic, whose.partition) != parsed:
            raise CorruptLog(path, 0, f"belongs to {whose.topic}-{whose.partition}")
        check_kind(place, whose, rows)
        found.append((topic, whose.topic_id, parsed[1]))
    return found
