"""One input directory, at a publisher or a node: the record batches of one session for one
partition.

A run is one life of the publisher; its files follow each other by roll. Its one owner appends,
seals and releases.

Invariant: a run's bytes are contiguous from where it starts; nothing below the durable mark is ever
cut or deleted, except by `release`, `release_run`, `start_at` and `set_run_aside`.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence

from samelog.format.batch import Bytes
from samelog.format.directory_files import TopicFile
from samelog.format.errors import CorruptLog, NotContiguous
from samelog.format.file_names import (
    MARKS_FILE,
    data_name,
    from_name,
    parse_names,
    sealed_name,
)
from samelog.format.marks import InputMarks, RunMark, encode_marks
from samelog.store.disk.append_file import AppendFile
from samelog.store.disk.directories import make_durable_directory
from samelog.store.disk.dirty_files import DirtyFiles
from samelog.store.disk.files import File, FileSystem, StrPath
from samelog.store.disk.quarantine import set_aside
from samelog.store.session.directory import bind_topic, read_topic_id
from samelog.store.session.reader import InputReader
from samelog.store.session.recovery import RunRecovery
from samelog.store.session.run import HeldFile, HeldRun, RunPosition

_NO_ENDS: Mapping[int, RunPosition] = {}


class InputLog(InputReader):
    """The session log of one session partition; made by `open`."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        super().__init__(fs, path)
        self.topic_id: str | None = None
        self.damaged: list[CorruptLog] = []
        """What was found damaged and set aside."""
        self.lost_durable = False
        """Whether bytes that were durable, or may have been, are among the damaged ones."""
        self.losses = 0
        """How often bytes that were held have been given up since the log was opened."""
        self._dirty = DirtyFiles(fs, path)
        self._files.may_close = self._may_close

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: StrPath,
        *,
        topic_id: str | None = None,
        number: int = 0,
        marks: Sequence[RunMark] | None = (),
        is_durable: bool = False,
    ) -> InputLog:
        """Open an input directory; make it if needed, and recover it.

        A publisher may not know the topic id yet: see `bind_topic`. `number`: of the input, at a
        node. `marks`: up to where runs are
        known to be durable; None: that is not known any more. `is_durable`: the directory is known
        to exist durably.

        Raises:
            OtherTopic: the directory belongs to another topic id or input.
            UnsupportedFormat: it was written by another version of the format.
            CorruptLog: a file is not a regular one, or topic.json is unreadable.
            DiskFault, NoSpace: the disk fails.
        """
        log = cls(fs, os.fspath(path))
        try:
            whose = None if topic_id is None else TopicFile(topic_id=topic_id, input=number)
            log._open(whose, marks, is_durable=is_durable)
        except BaseException:
            log.close()
            raise
        return log

    @classmethod
    def new(cls, fs: FileSystem, path: StrPath, topic_id: str) -> InputLog:
        """Return the log of a directory that was just made, and holds nothing but topic.json."""
        log = cls(fs, os.fspath(path))
        log.topic_id = topic_id
        return log

    def _open(
        self, whose: TopicFile | None, marks: Sequence[RunMark] | None, *, is_durable: bool
    ) -> None:
        if not is_durable:
            make_durable_directory(self._fs, self.path)
        if whose is None:
            self.topic_id = read_topic_id(self._fs, self.path)
        else:
            self._bind(whose)
        names = parse_names(self._fs.list_directory(self.path))
        marked = {mark.run: mark for mark in marks or ()}
        recovery = RunRecovery(self._fs, self.path, marks is not None, self.damaged)
        for number in sorted(names):
            run = recovery.recover(number, names[number], marked.get(number))
            if run is not None:
                self._runs[number] = run
                self._hold_unsynced(run)
        self.lost_durable = recovery.lost_durable

    def _hold_unsynced(self, run: HeldRun) -> None:
        """What reaches above the mark must be synced before it can be marked durable; so must the
        name of a file that nothing was written to: it may be as new as that.
        """
        for held in run.files.values():
            if (held.roll, held.size) > run.durable:
                self._dirty.files[self._hold(run.number, held.roll)] = None
        newest = run.newest
        is_new = newest is not None and newest.size == run.begin_of(newest.roll)
        if run.end > run.durable or is_new:
            self._dirty.touch_directory()

    def bind_topic(self, topic_id: str) -> None:
        """Note durably which topic the directory belongs to. Raises OtherTopic."""
        self._bind(TopicFile(topic_id=topic_id))

    def _bind(self, whose: TopicFile) -> None:
        bind_topic(self._fs, self.path, whose)
        self.topic_id = whose.topic_id

    # --- appending -----------------------------------------------------------------------------

    def append(self, run: int, roll: int, byte: int, data: Bytes) -> None:
        """Write whole batches at the end of a run.

        Raises:
            NotContiguous: (roll, byte) is not the end of the run.
            NoSpace, DiskFault: nothing counts as written.
        """
        state = self._runs.get(run) or self._begin_run(run, roll, byte)
        held = state.newest
        if held is None or held.roll != roll or held.size != byte or held.is_sealed:
            held = self._next_file(state, roll, byte)
        appender = held.appender or self._open_appender(state, held)
        appender.append(data)
        held.size = appender.size
        state.end = roll, held.size
        state.last_append, state.last = (roll, byte), None
        self._dirty.files[appender.file] = None
        if self.recent is not None:
            self.recent.wrote(run, roll, byte, data)

    def _begin_run(self, number: int, roll: int, byte: int) -> HeldRun:
        if (roll, byte) != (0, 0):
            raise self._not_contiguous(number, roll, byte)
        run = self._runs[number] = HeldRun(number, (0, 0), durable=(0, 0))
        return run

    def _next_file(self, run: HeldRun, roll: int, byte: int) -> HeldFile:
        """The next file of a run, if that is where the bytes are to go."""
        is_due = run.newest is None or run.newest.is_sealed
        if (roll, byte) != run.end or not is_due:
            raise self._not_contiguous(run.number, roll, byte)
        return self._add_file(run, roll)

    def _not_contiguous(self, run: int, roll: int, byte: int) -> NotContiguous:
        end = self.end(run)
        return NotContiguous(
            f"{self.path}: bytes for {roll}:{byte} of run {run}, which ends at {end[0]}:{end[1]}"
        )

    def _add_file(self, run: HeldRun, roll: int) -> HeldFile:
        self._fs.open(self._path(data_name(run.number, roll)), create=True).close()
        self._dirty.touch_directory()
        return run.add(HeldFile(roll, run.begin_of(roll)))

    def _open_appender(self, run: HeldRun, held: HeldFile) -> AppendFile:
        held.appender = AppendFile(self._hold(run.number, held.roll), held.size)
        return held.appender

    def _hold(self, run: int, roll: int) -> File:
        """A file open for writing, which stays open until a sync of it is known to be done."""
        file = self._files.held((run, roll))
        if file is None:
            file = self._fs.open(self._path(data_name(run, roll)), writable=True)
            self._files.hold((run, roll), file)
        return file

    def seal(self, run: int, roll: int, length: int) -> None:
        """The file ends here; the run goes on at (roll + 1, 0).

        Raises:
            NotContiguous: (roll, length) is not the end of the run.
            DiskFault: the disk fails.
        """
        state = self._runs.get(run) or self._begin_run(run, roll, length)
        held = state.newest
        if held is None or (held.roll, held.size) != (roll, length) or held.is_sealed:
            held = self._next_file(state, roll, length)
        appender = held.appender or self._open_appender(state, held)
        appender.seal()
        self._dirty.files[appender.file] = None
        self._create(sealed_name(run, roll, length))
        self._create(data_name(run, roll + 1))
        held.appender, held.is_sealed = None, True  # only now: a full disk may have come before
        state.add(HeldFile(roll + 1, state.begin_of(roll + 1)))

    def start_at(self, run: int, roll: int, byte: int) -> None:
        """Give up what is held of a run: it goes on at (roll, byte), and is held from there.

        Raises:
            NotContiguous: the run already reaches further.
            DiskFault: the disk fails.
        """
        state = self._runs.get(run) or self._begin_run(run, 0, 0)
        if (roll, byte) < state.end:
            raise self._not_contiguous(run, roll, byte)
        old = state.start
        if (roll, byte) == old and not state.files:
            self._add_file(state, roll)
            return
        self._create(from_name(run, roll, byte))  # from here on, whatever happens
        self._restart_run(state, roll, byte)
        if old != (roll, byte):
            self._remove_marker(from_name(run, *old))

    def _restart_run(self, run: HeldRun, roll: int, byte: int) -> None:
        """Let what is held of a run begin, empty, at (roll, byte)."""
        self._give_up_bytes()
        for lower in [lower for lower in run.files if lower < roll]:
            self._remove_file(run, lower)
        run.start = run.durable = (roll, byte)
        run.hint, run.last, run.last_append = byte, None, None
        held = run.files.get(roll) or self._add_file(run, roll)
        if held.appender is not None:
            held.appender.start_at(byte)
        held.size = byte
        run.end = roll, byte

    # --- durability ----------------------------------------------------------------------------

    def dirty(self) -> bool:
        """Whether anything was written since the last `take_dirty`."""
        return bool(self._dirty)

    def take_dirty(self) -> list[File]:
        """The files (and directory) written since the last call, to be synced together; then
        `synced` is to be called.
        """
        return self._dirty.drain()

    def synced(
        self,
        files: Container[File] | None = None,
        ends: Mapping[int, RunPosition] = _NO_ENDS,
    ) -> None:
        """Note the end of a round of syncs that had these files (None: all that were taken).
        `ends`: batch boundaries up to which it made runs durable.
        """
        self._dirty.synced(files)
        for run, end in ends.items():
            state = self._runs.get(run)
            if state is None:
                continue
            before = state.durable
            if state.advance_mark(end):
                for lower in range(before[0], end[0]):
                    self._files.release((run, lower))

    def marks(self) -> list[RunMark]:
        """Up to where runs are known to be durable, of those that are beyond their start."""
        return [run.mark() for run in self._runs.values() if run.durable > run.start]

    def settle(self) -> None:
        """Make everything durable now, waiting for the disk. Raises DiskFault."""
        for file in self.take_dirty():
            file.datasync()
        self.synced(ends=self.ends())

    # --- releasing -----------------------------------------------------------------------------

    def release(self, run: int, roll: int) -> None:
        """Remove the sealed files of a run up to `roll`: all is merged. Raises DiskFault.

        Each is gone for good before the next one goes: a loss of power that kept an older file, or
        one without its marker, would leave a hole, and what is behind holes is not trusted.
        """
        state = self._runs.get(run)
        if state is None:
            return
        gone = [held.roll for held in state.files.values() if held.roll <= roll and held.is_sealed]
        if len(gone) == len(state.files) > 0:
            self._add_file(state, gone[-1] + 1)  # says where the run goes on
        for number in gone:
            self._remove_file(state, number, for_good=True)
        if gone and state.start < (gone[-1] + 1, 0):
            self._remove_marker(from_name(run, *state.start))
            state.start, state.last = (gone[-1] + 1, 0), None
            if state.durable < state.start:
                state.durable, state.hint = state.start, 0

    def release_run(self, run: int) -> None:
        """Remove all of a closed run. Raises DiskFault."""
        state = self._runs.pop(run, None)
        if state is None:
            return
        self._give_up_bytes()
        for roll in list(state.files):
            self._remove_file(state, roll)
        self._remove_marker(from_name(run, *state.start))

    def set_run_aside(self, run: int) -> None:
        """Give up what is held of a run; the files are kept under other names. Raises DiskFault."""
        state = self._runs.pop(run, None)
        if state is None:
            return
        self._give_up_bytes()
        for roll in list(state.files):
            held, path = state.remove(roll), self._path(data_name(run, roll))
            self._dirty.forget(path)
            self._files.drop((run, roll))
            aside = set_aside(self._fs, path)
            self.damaged.append(CorruptLog(path, 0, f"follows a gap; it is now {aside}"))
            if held.is_sealed:
                self._remove_marker(sealed_name(run, roll, held.size))
        self._remove_marker(from_name(run, *state.start))
        self._fs.sync_directory(self.path)

    def _remove_file(self, run: HeldRun, roll: int, *, for_good: bool = False) -> None:
        """The data goes first: a marker without it is a leftover, and known as one."""
        held = run.remove(roll)
        path = self._path(data_name(run.number, roll))
        self._dirty.forget(path)
        self._files.drop((run.number, roll))
        self._fs.unlink(path)
        if for_good:
            self._fs.sync_directory(self.path)
        if held.is_sealed:
            self._remove_marker(sealed_name(run.number, roll, held.size))
        self._dirty.touch_directory()

    def _remove_marker(self, name: str) -> None:
        if self._fs.exists(self._path(name)):
            self._fs.unlink(self._path(name))

    def rest(self) -> bool:
        """Close all files until they are needed again; whether that is done. Not while bytes are to
        be synced, or the only way to the bytes of a file whose name is gone. Raises DiskFault.
        """
        if self._dirty.files or any(run.durable != run.end for run in self._runs.values()):
            return False
        if not self._may_close():
            return False
        self._files.close()
        return True

    def _may_close(self) -> bool:
        """Prepare for the closing of all files; False while an open one is the only way to the
        bytes of a file whose name is gone.
        """
        if not all(self._fs.exists(self._path(name)) for name in self._open_names()):
            return False
        for run in self._runs.values():
            for held in run.files.values():
                held.appender = None
        return True

    def _open_names(self) -> list[str]:
        """Of data files."""
        files = [(number, roll) for number, run in self._runs.items() for roll in run.files]
        return [data_name(*file) for file in files if self._files.find(file) is not None]

    def close(self) -> None:
        """Close all files; nothing is synced or marked."""
        self._give_up_bytes()
        self._files.close()
        self._dirty.close()

    # --- small things --------------------------------------------------------------------------

    def _give_up_bytes(self) -> None:
        self.losses += 1
        if self.recent is not None:
            self.recent.clear()

    def _create(self, name: str) -> None:
        self._fs.open(self._path(name), create=True).close()
        self._dirty.touch_directory()


def prepare_input(fs: FileSystem, path: StrPath) -> None:
    """Make an input directory, with marks to say that nothing of it is durable, and no more.

    For a publisher that writes its files itself: it spares looking at what older runs left.

    Raises:
        CorruptLog: it is not a real directory.
        DiskFault, NoSpace: the disk fails.
    """
    directory = os.fspath(path)
    fs.make_directory(directory)
    marks = os.path.join(directory, MARKS_FILE)
    if not fs.exists(marks) and not parse_names(fs.list_directory(directory)):
        fs.write_atomically(marks, encode_marks(InputMarks(runs=[])), durable=False)
