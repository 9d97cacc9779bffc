"""A subscriber's copy of one merged partition: its files.

A copy begins at the start of the segment that holds the wanted offset, so that its files are those
of the nodes, byte for byte.

Invariant: a copy's bytes are never cut or replaced here; what does not fit is rejected. Bytes that
the cluster has compacted since are set aside before they are copied again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from samelog.format.directory_files import RowsFile
from samelog.store.disk.disk_errors import DirectoryGone
from samelog.store.disk.files import FileSystem
from samelog.store.merged.log import MergedLog
from samelog.store.merged.partition_file import copy_path, read_partition_topic
from samelog.store.merged.topic_dirs import TopicDirs
from samelog.store.merged.truncation import LogStart
from samelog.wire.bounds import RowsAsked
from samelog.wire.pull.copies import PulledCopy, StartAt
from samelog.wire.receiver import ResumePoint

log = logging.getLogger(__name__)

FindStart = Callable[[str, str, int], StartAt]
"""(topic, topic id, partition) -> where the copy begins."""


@dataclass(slots=True, eq=False)
class Copy(PulledCopy):
    """One copy."""

    log: MergedLog

    @property
    def is_in_place(self) -> bool:
        """Whether what it writes to can be found by those who read it; once not, never again."""
        return not isinstance(self.fault, DirectoryGone) and self.log.is_in_place()

    def place(self, find_start: FindStart) -> StartAt | ResumePoint:
        """Where it ends, or is to begin. Raises LogFormatError."""
        log = self.log
        if not self.is_begun:
            return find_start(log.topic, log.topic_id, log.partition)
        end, last = log.end(), log.last_batch()
        is_same_file = last is not None and last[0] == end[0]
        return ResumePoint(*end, *last[1:]) if last and is_same_file else ResumePoint(*end)

    def archive(self, start: LogStart, *, keep: bool) -> bool:
        """The cluster has archived what is before `start`; whether files are to be truncated. With
        `keep` none are, but a copy that has not come so far goes on there. Raises LogFormatError.
        """
        is_behind = self.log.end() < (start.segment, 0)
        if is_behind:
            where = f"offsets {self.log.next_offset} to {start.segment - 1}"
            log.warning("%s-%d: %s were archived before they were copied", *self.name, where)
        if is_behind or not keep:
            self.log.archive(start)
        return not keep

    def cut(self, base: int) -> list[str]:
        """It goes back to where a segment begins, which was compacted; what was there is set aside:
        as which files. Raises LogFormatError.
        """
        start = self.log.segments()[0].base_offset
        aside = self.log.cut_back(max(base, start), keep=True)
        if base < start:
            self.log.start_at(base, checksum=0)
        text = "%s-%d: what is behind offset %d was compacted, and is copied again; aside: %s"
        log.info(text, *self.name, base, ", ".join(map(os.path.basename, aside)))
        return aside

    def begin(self, offset: int, file: int, *, log_start: int) -> None:
        """It begins with the segment `file`, because `offset` is wanted; what is below `log_start`
        is archived. Raises LogFormatError.
        """
        if self.log.end() != (file, 0):
            self.log.start_at(file, checksum=0)
        self.log.archive(LogStart(log_start, file, 0))
        self.wanted_offset = offset


def begin_anew(
    fs: FileSystem, directory: str, old: Copy, rows: RowsFile | None
) -> tuple[Copy, str]:
    """An empty copy of the log that took the place of another one, whose copy is set aside: where.
    Raises LogFormatError.
    """
    old.log.close()
    topic, partition = old.name
    dirs = TopicDirs(fs, lambda path: read_partition_topic(fs, path))
    aside = dirs.park(old.log.path, old.log.topic_id, partition)
    return make_copy(fs, directory, (topic, partition), old.successor, rows), aside


def make_copy(
    fs: FileSystem,
    directory: str,
    name: tuple[str, int],
    topic_id: str,
    rows: RowsFile | None,
) -> Copy:
    """Open or make a copy of (topic, partition), or of what passes a filter. Raises
    LogFormatError.
    """
    topic, partition = name
    log = MergedLog.open(
        fs,
        copy_path(directory, topic, partition),
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        hold=True,
        rows=rows,
    )
    return Copy(log, rows=None if rows is None else RowsAsked(*rows.filter))
