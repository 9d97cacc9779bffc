"""The copies that are kept in one directory: opened, made, restarted, closed.

Invariant: one process keeps the copies of a directory (a lock); nothing is made in a directory that
took the place of the one that is locked, or of a copy that is open.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Container, Iterable, Mapping

from samelog.format.directory_files import RowsFile
from samelog.format.errors import LogFormatError
from samelog.format.file_names import parse_input_name
from samelog.replicator.cluster_pin import ClusterPin
from samelog.replicator.interfaces import InputName
from samelog.replicator.pull.copy import Copy, begin_anew, make_copy
from samelog.replicator.pull.share import Share
from samelog.store.disk.directories import clear_removed, remove_whole
from samelog.store.disk.disk_errors import DirectoryGone
from samelog.store.disk.files import File, FileSystem
from samelog.store.merged.partition_file import (
    copy_path,
    find_partition_directories,
    read_partition_topic,
)
from samelog.store.merged.topic_dirs import TopicDirs
from samelog.wire.pull.copies import CopyState

log = logging.getLogger(__name__)

LOCK_FILE = "copies.lock"


class CopyDirectory:
    """`<topic>-<partition>` is where each copy is."""

    def __init__(
        self,
        path: str,
        fs: FileSystem,
        on_change: Callable[[Copy], None],
        rows: Mapping[str, RowsFile],
    ) -> None:
        """`rows`: by topic, if only what passes a filter is copied of it."""
        self.copies: dict[InputName, Copy] = {}
        self.shared: Mapping[InputName, Share] | None = None
        """Those that a member of a group copies; None: it is in no group, and copies all."""
        self.counts: dict[str, int] = {}
        """How many partitions each topic has, as a node said."""
        self._first_partitions: dict[str, int] = {}
        """By log id."""
        self._path = path
        self._fs = fs
        self._on_change = on_change
        self._rows = rows
        self.pin = ClusterPin(fs, path)
        """Which cluster the copies come from."""
        self._lock_path = os.path.join(path, LOCK_FILE)
        self._lock: File | None = None
        self._locked: tuple[int, int] | None = None
        """Which file that is."""

    def open(self) -> None:
        """Make the directory if need be, and lock it. Raises DirectoryInUse, LogFormatError."""
        self._fs.make_directory(self._path)
        self._lock = self._fs.lock(self._lock_path)
        self._locked = self._fs.identity(self._lock_path)
        clear_removed(self._fs, self._path)

    def close(self) -> None:
        """Let go of all files."""
        for copy in self.copies.values():
            _close(copy)
        if self._lock is not None:
            self._lock.close()

    def alive(self) -> list[Copy]:
        """Those of topics that there are."""
        return [copy for copy in self.copies.values() if copy.state is not CopyState.GONE]

    def begin_log(self, log_id: str, partitions: int, *, is_resumed: bool) -> None:
        """Note how many partitions a log has when copying of it begins. `is_resumed`: it began when
        the copies did that are there.
        """
        if log_id not in self._first_partitions:
            held = sum(copy.log.topic_id == log_id for copy in self.copies.values())
            self._first_partitions[log_id] = (held if is_resumed else 0) or partitions

    def is_added(self, log_id: str, partition: int) -> bool:
        """Whether a partition was added after copying of its log began."""
        return partition >= self._first_partitions.get(log_id, partition + 1)

    # --- opening and making -------------------------------------------------------------------

    def find(self, topic: str) -> None:
        """Open the copies there are. Raises LogFormatError."""
        if self.shared is not None:
            return
        found = find_partition_directories(self._fs, self._path, topic, self._rows.get(topic))
        for name, topic_id, partition in found:
            if (name, partition) not in self.copies:
                self._add(name, topic_id, partition)

    def find_usable(self, topics: Iterable[str]) -> None:
        """Open what can be opened; the rest is told again, and tried again, when it is to grow."""
        for topic in topics:
            try:
                self.find(topic)
            except LogFormatError as error:
                log.error("a copy of %s cannot be used: %s", topic, error)

    def of_topic(self, topic: str, topic_id: str, partitions: int) -> list[Copy]:
        """The copies of a topic, made if need be: all are told of before any catches up."""
        for partition in range(partitions):
            if (topic, partition) not in self.copies and self.shared is None:
                self._on_change(self._add(topic, topic_id, partition))
        return [copy for copy in self.copies.values() if copy.log.topic == topic]

    def _add(self, topic: str, topic_id: str, partition: int) -> Copy:
        self._check_place()
        copy = make_copy(self._fs, self._path, (topic, partition), topic_id, self._rows.get(topic))
        for damage in copy.log.damaged:
            log.error("a copy was damaged: %s", damage)
        self.copies[copy.name] = copy
        return copy

    def share(self, held: Mapping[InputName, Share]) -> list[Copy]:
        """Copy these only; what is new. Copies of others are closed, and kept as they are. Raises
        LogFormatError.
        """
        self.shared = held
        for name, copy in tuple(self.copies.items()):
            if name not in held or copy.log.topic_id != held[name].topic_id:
                del self.copies[name]
                _close(copy)
                copy.state = CopyState.GONE
        new = [name for name in held if name not in self.copies]
        return [self._take_up(name, held[name]) for name in new]

    def _take_up(self, name: InputName, share: Share) -> Copy:
        """A copy that goes on where the group is: what is elsewhere is removed, as all that is in
        it is in the cluster, and was or will be another member's.
        """
        self._check_place()
        path = copy_path(self._path, *name)
        if self._fs.exists(path) and read_partition_topic(self._fs, path) != share.topic_id:
            remove_whole(self._fs, path)
        copy = self._add(name[0], share.topic_id, name[1])
        if not share.is_held_by(copy.log) and copy.is_begun:
            copy.log.close()
            remove_whole(self._fs, path)
            copy = self._add(name[0], share.topic_id, name[1])
        return copy

    def begin_anew(self, old: Copy) -> Copy:
        """An empty copy of the log that took the place of another one; the old copy is set aside.
        Raises LogFormatError.
        """
        self._check_place()
        copy, aside = begin_anew(self._fs, self._path, old, self._rows.get(old.name[0]))
        log.warning("%s-%d was restarted in the cluster; the old copy is %s", *old.name, aside)
        self.copies[copy.name] = copy
        return copy

    def set_aside_others(self, topic: str, log_id: str) -> list[Copy]:
        """Set the copies of other logs aside that had this name: of deleted topics. Returns those
        that were open.
        """
        old = [c for c in self.copies.values() if c.name[0] == topic and c.log.topic_id != log_id]
        for copy in old:
            del self.copies[copy.name]
            _close(copy)
            copy.state = CopyState.GONE
        try:
            self._park_others(topic, log_id)
        except LogFormatError as error:
            log.error("the copies of an older topic %s cannot be set aside: %s", topic, error)
        return old

    def _park_others(self, topic: str, log_id: str) -> None:
        dirs = TopicDirs(self._fs, lambda path: read_partition_topic(self._fs, path))
        for name in self._fs.list_directory(self._path):
            parsed = parse_input_name(name)
            if parsed is None or parsed[0] != topic:
                continue
            path = copy_path(self._path, *parsed)
            owner = read_partition_topic(self._fs, path)
            if owner is not None and owner != log_id:
                aside = dirs.park(path, owner, parsed[1])
                log.info("%s-%d was created again; the copy of the old log is %s", *parsed, aside)

    def leave_others(self, topics: Container[str]) -> list[Copy]:
        """Close the copies of topics that are copied no more, once they are durable: which."""
        others = [copy for copy in self.copies.values() if copy.log.topic not in topics]
        left = [copy for copy in others if not copy.log.dirty()]
        for copy in left:
            del self.copies[copy.name]
            _close(copy)
            copy.state = CopyState.GONE
            log.info("%s-%d is copied no more; what was copied is kept", *copy.name)
            self._on_change(copy)
        return left

    # --- the place ----------------------------------------------------------------------------

    def is_in_place(self) -> bool:
        """Whether the directory and the copies are those that were opened; others may have taken
        their places. Once not, never again.
        """
        return self._is_locked() and all(copy.is_in_place for copy in self.alive())

    def _is_locked(self) -> bool:
        try:
            return self._fs.identity(self._lock_path) == self._locked
        except LogFormatError:
            return False

    def _check_place(self) -> None:
        if not self._is_locked():
            raise DirectoryGone(self._path)

    def stop_displaced(self) -> None:
        """Copies that readers do not find any more grow no more."""
        is_locked = self._is_locked()
        for copy in self.alive():
            if copy.state is not CopyState.STOPPED and not (is_locked and copy.is_in_place):
                self.stop(copy, DirectoryGone(copy.log.path if is_locked else self._path))

    def stop(self, copy: Copy, fault: LogFormatError) -> None:
        """The copy cannot be used."""
        copy.state, copy.fault = CopyState.STOPPED, fault
        log.error("copying of %s-%d has stopped: %s", *copy.name, fault)
        self._on_change(copy)


def _close(copy: Copy) -> None:
    try:
        if copy.state is not CopyState.GONE:  # its name may be another one's already
            copy.log.save_marks()
    except LogFormatError as error:
        log.error("the marks of %s-%d could not be saved: %s", *copy.name, error)
    copy.log.close()
