"""A subscriber's copy of one merged partition, and how its pull stands.

A copy begins at the start of the segment that holds the wanted offset, so that its files are those
of the nodes, byte for byte.

Invariant: a copy's bytes are never cut or replaced here; what does not fit is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from samelog.config.values import Address
from samelog.format.errors import LogFormatError
from samelog.replicator.pull.repair_pull import PullRefused
from samelog.store.disk.disk_errors import DirectoryGone
from samelog.store.disk.files import FileSystem
from samelog.store.merged.log import MergedLog
from samelog.store.merged.partition_file import copy_path, read_partition_topic
from samelog.store.merged.topic_dirs import TopicDirs
from samelog.store.merged.truncation import LogStart
from samelog.wire.messages import NO_BATCH, OpenMerged, Start

log = logging.getLogger(__name__)


class StartAt(NamedTuple):
    """Where a copy that does not exist yet begins; `value`: the offset, or the timestamp in ms."""

    start: Start
    value: int = 0


EARLIEST = StartAt(Start.EARLIEST)

FindStart = Callable[[str, str, int], StartAt]
"""(topic, topic id, partition) -> where the copy begins."""


class CopyState(Enum):
    """Of one copy."""

    WAITING = auto()
    """Not open at a node."""
    OPENING = auto()
    COPYING = auto()
    STOPPED = auto()
    """For good: every node refuses, or the local copy cannot be used. `fault` says why."""
    GONE = auto()
    """The topic was deleted, or its log begun anew (then there is a successor); the copy stays."""


@dataclass(slots=True, eq=False)
class Copy:
    """One copy. `retry_at`: when a waiting one is to be opened again."""

    log: MergedLog
    state: CopyState = CopyState.WAITING
    fault: PullRefused | LogFormatError | None = None
    """Why it waits or has stopped."""
    cluster_end: int | None = None
    """The offset behind the newest record of the cluster, as far as that was told."""
    caught_up: bool = False
    """Whether the node that is asked had no more when it was heard last."""
    wanted_offset: int | None = None
    """The first offset that was asked for, of a copy that was begun by this client."""
    successor: str = ""
    """The id of the log that the topic has now, instead of this one; empty: it has none."""
    retry_at: float = 0.0
    since: float = 0.0
    refused_by: dict[Address, PullRefused] = field(default_factory=dict)
    """Node -> why it cannot go on with this copy."""
    name: tuple[str, int] = field(init=False)
    """(topic, partition)."""

    def __post_init__(self) -> None:
        self.name = self.log.topic, self.log.partition

    @property
    def is_in_place(self) -> bool:
        """Whether what it writes to can be found by those who read it; once not, never again."""
        return not isinstance(self.fault, DirectoryGone) and self.log.is_in_place()

    @property
    def is_begun(self) -> bool:
        """Whether it is settled where it begins."""
        return self.wanted_offset is not None or self.log.end() != (0, 0)

    def request(self, handle: int, find_start: FindStart) -> OpenMerged:
        """The message that opens it."""
        log = self.log
        name = log.topic, log.topic_id, log.partition
        if not self.is_begun:
            return OpenMerged(handle, *name, *find_start(*name))
        file, byte = log.end()
        last = log.last_batch()
        start, crc = (NO_BATCH, 0) if last is None or last[0] != file else last[1:]
        return OpenMerged(handle, *name, Start.POSITION, 0, file, byte, start, crc)

    def ask_again(self) -> None:
        """There is a node that has not been asked yet: what others refused counts no more."""
        if self.state is CopyState.STOPPED and isinstance(self.fault, PullRefused):
            self.state, self.fault = CopyState.WAITING, None
        self.refused_by.clear()

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

    def begin(self, offset: int, file: int, *, log_start: int) -> None:
        """It begins with the segment `file`, because `offset` is wanted; what is below `log_start`
        is archived. Raises LogFormatError.
        """
        if self.log.end() != (file, 0):
            self.log.start_at(file, checksum=0)
        self.log.archive(LogStart(log_start, file, 0))
        self.wanted_offset = offset


def begin_anew(fs: FileSystem, directory: str, old: Copy) -> tuple[Copy, str]:
    """An empty copy of the log that took the place of another one, whose copy is set aside: where.
    Raises LogFormatError.
    """
    old.log.close()
    topic, partition = old.name
    dirs = TopicDirs(fs, lambda path: read_partition_topic(fs, path))
    aside = dirs.park(old.log.path, old.log.topic_id, partition)
    return make_copy(fs, directory, topic, old.successor, partition), aside


def make_copy(fs: FileSystem, directory: str, topic: str, topic_id: str, partition: int) -> Copy:
    """Open or make a copy. Raises LogFormatError."""
    path = copy_path(directory, topic, partition)
    log = MergedLog.open(fs, path, topic=topic, topic_id=topic_id, partition=partition, hold=True)
    return Copy(log)
