"""A session's directory, at a publisher or a node: whose it is, its runs, and the inputs below it,
one for each partition. Its files are listed in `format.file_names`.

An input belongs to a topic id, not to a name: a topic that was deleted and created again has
another id, and shares nothing with the old one. Once written, the id of an input never changes.

Invariant: a run's number and random id are durable before a byte of it exists, and never change, so
that a copied or restored directory can never put other bytes under an old position.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Self

import msgspec

from samelog.format.directory_files import RunFile, SessionFile, TopicFile
from samelog.format.errors import CorruptLog, LogFormatError, OtherTopic, UnsupportedFormat
from samelog.format.file_names import (
    LOCK_FILE,
    SESSION_FILE,
    TOPIC_FILE,
    input_name,
    parse_input_name,
    parse_names,
)
from samelog.format.names import check_session_name, check_topic_name
from samelog.store.disk.directories import make_durable_directory
from samelog.store.disk.disk_errors import DirectoryGone, NoHardLinks, NoSpace
from samelog.store.disk.files import TEMPORARY_SUFFIX, File, FileSystem, NoSuchFile, StrPath
from samelog.store.disk.json_files import (
    create_json_file,
    read_json_file,
    report_once,
    write_json_file,
)

BESIDE_SUFFIX = ".beside.tmp"
"""Of the record of a run that is begun beside the writer."""
_RUN_FILE = re.compile(r"run(?:-again)?\.(0|[1-9][0-9]{0,18})\.json")


class RunExists(LogFormatError):
    """The number of a new run is taken by another run."""


def run_files(session: str, number: int) -> tuple[str, str]:
    """The file of a run and its copy, in the directory of a session."""
    names = f"run.{number}.json", f"run-again.{number}.json"
    return os.path.join(session, names[0]), os.path.join(session, names[1])


def run_files_to_remove(fs: FileSystem, session: str, number: int) -> tuple[str, str]:
    """The same files in the order in which they are removed: the one that the run is read from goes
    last, because another process may read it in between.
    """
    path, copy = run_files(session, number)
    try:
        is_intact = read_json_file(fs, path, RunFile) is not None
    except LogFormatError:
        is_intact = False
    return (copy, path) if is_intact else (path, copy)


class SessionDirectory:
    """One session's directory; `lock` it before writing."""

    def __init__(self, fs: FileSystem, path: str, record: SessionFile) -> None:
        self.path = path
        self.record = record
        self._fs = fs
        self._lock: File | None = None
        self._locked: tuple[int, int] | None = None
        """What tells the file that is locked from others of its name."""

    @classmethod
    def open(cls, fs: FileSystem, path: StrPath) -> Self:
        """Open an existing directory.

        Raises:
            NoSuchFile: it has no session.json (yet).
            UnsupportedFormat: it was written by another version of the format.
            CorruptLog: session.json is unreadable, or not a regular file.
        """
        name = os.fspath(path)
        record = read_json_file(fs, os.path.join(name, SESSION_FILE), SessionFile)
        if record is None:
            raise NoSuchFile(f"{name} has no {SESSION_FILE}")
        return cls(fs, name, record)

    @classmethod
    def open_or_create(
        cls,
        fs: FileSystem,
        path: StrPath,
        *,
        session: str,
        session_id: str,
        identity: str | None = None,
        cluster: str | None = None,
        is_durable: bool = False,
    ) -> Self:
        """Open a directory, or make it with this id; the id of an existing one stays. `is_durable`:
        the directory is known to exist durably.

        Raises:
            InvalidName: the session's name breaks the grammar.
            UnsupportedFormat: the directory is another session's, or of another format version.
            CorruptLog, DiskFault: as `open`.
        """
        name = os.fspath(path)
        check_session_name(session)
        if not is_durable:
            make_durable_directory(fs, name)
        file = os.path.join(name, SESSION_FILE)
        record = read_json_file(fs, file, SessionFile)
        if record is None:
            record = SessionFile(session=session, id=session_id, identity=identity, cluster=cluster)
            write_json_file(fs, file, record)
        if record.session != session:
            raise UnsupportedFormat(
                f"{name} belongs to session {record.session!r}, not {session!r}"
            )
        return cls(fs, name, record)

    def lock(self) -> None:
        """Become the one process that writes here. Raises DirectoryInUse naming the other's pid."""
        if self._lock is None:
            path = os.path.join(self.path, LOCK_FILE)
            self._lock = self._fs.lock(path)
            self._locked = self._fs.identity(path)

    @property
    def is_locked(self) -> bool:
        """Whether this process is the one that writes here."""
        return self._lock is not None

    def check_place(self) -> None:
        """Raise DirectoryGone unless what was locked is still found where it was."""
        try:
            found = self._fs.identity(os.path.join(self.path, LOCK_FILE))
        except NoSuchFile:
            found = None
        if found != self._locked:
            raise DirectoryGone(self.path)

    def close(self) -> None:
        """Release the lock, if it is held."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # --- runs ----------------------------------------------------------------------------------

    def runs(self) -> list[RunFile]:
        """All runs, by number. Raises UnsupportedFormat, CorruptLog."""
        runs, damaged = self.readable_runs()
        if damaged:
            raise damaged[0]
        return runs

    def names(self) -> list[str]:
        """List the directory, for both `readable_runs` and `inputs`."""
        return self._fs.list_directory(self.path)

    def readable_runs(
        self, names: Iterable[str] | None = None
    ) -> tuple[list[RunFile], list[CorruptLog]]:
        """All runs whose files can be read, by number, and what is wrong with the others. `names`:
        of the directory, if they are listed already. Raises UnsupportedFormat.
        """
        runs, damaged = [], []
        for number in self._run_numbers(names):
            try:
                found = self.run(number)
            except CorruptLog as damage:
                damaged.append(damage)
            else:
                runs += [] if found is None else [found]
        return runs, damaged

    def _run_numbers(self, names: Iterable[str] | None = None) -> list[int]:
        found = self.names() if names is None else names
        return sorted({int(match[1]) for name in found if (match := _RUN_FILE.fullmatch(name))})

    def run(self, number: int) -> RunFile | None:
        """One run; None if there is none of this number. Where its file is damaged or missing, its
        copy counts. Raises UnsupportedFormat, CorruptLog.
        """
        path, copy = run_files(self.path, number)
        try:
            found = read_json_file(self._fs, path, RunFile)
        except CorruptLog:
            if (found := self._run_in(copy)) is None:
                raise
        found = found or self._run_in(copy)
        if found is not None and found.run != number:
            raise CorruptLog(path, 0, f"says it is run {found.run}")
        return found

    def _run_in(self, copy: str) -> RunFile | None:
        """What the copy of a run's file says; None if it is missing or damaged, too."""
        try:
            found = read_json_file(self._fs, copy, RunFile)
        except CorruptLog:
            return None
        if found is not None:
            report_once(f"{self._run_path(found.run)} is damaged or missing; {copy} is used")
        return found

    def next_run(self) -> int:
        """A number above all runs that have a file or bytes in this directory."""
        numbers = self._run_numbers()
        for topic, partition in self.inputs():
            numbers.extend(parse_names(self._fs.list_directory(self.input_path(topic, partition))))
        return max(numbers, default=-1) + 1

    def begin_run(
        self,
        number: int,
        *,
        run_id: str,
        started_ms: int,
        dedup_id: str | None = None,
        dedup_base: int | None = None,
        stage: str | None = None,
        end: Mapping[str, tuple[int, int]] | None = None,
    ) -> RunFile:
        """Note a run durably; no byte of it may be written before. `end`: of a run that has ended
        already. The process that ships may begin runs beside the writer, which holds the lock.

        Raises:
            RunExists: the number is taken.
            NoHardLinks: the writer holds the lock, and only it can begin runs on this file system.
            DiskFault, NoSpace: the disk fails.
        """
        run = RunFile(
            run=number,
            run_id=run_id,
            dedup_id=dedup_id,
            dedup_base=dedup_base,
            started_ms=started_ms,
            stage=stage,
            end=None if end is None else dict(end),
        )
        if not self._create_run(self._run_path(number), run):
            raise RunExists(f"{self._run_path(number)} exists")
        self._write_copy(run)
        return run

    def _create_run(self, path: str, run: RunFile) -> bool:
        """Create the file of a run, durably; False if it exists."""
        temporary = path + (TEMPORARY_SUFFIX if self.is_locked else BESIDE_SUFFIX)
        try:
            return create_json_file(self._fs, path, run, temporary=temporary)
        except NoHardLinks:
            if not self.is_locked:
                raise
        if self._fs.exists(path):
            return False
        write_json_file(self._fs, path, run)
        return True

    def _write_copy(self, run: RunFile) -> None:
        """Write the copy of a run's file, which lags if there is no room."""
        with suppress(NoSpace):
            _, copy = run_files(self.path, run.run)
            write_json_file(self._fs, copy, run, durable=False)

    def end_run(self, number: int, ends: Mapping[str, tuple[int, int]]) -> RunFile:
        """Note durably where a run's inputs end (by input name). Raises NoSuchFile, DiskFault."""
        known = self.run(number)
        if known is None:
            raise NoSuchFile(f"{self._run_path(number)} is not there")
        run = msgspec.structs.replace(known, end=dict(ends))
        write_json_file(self._fs, self._run_path(number), run)
        self._write_copy(run)
        return run

    def forget_run(self, number: int) -> None:
        """Remove the record of a run whose bytes are released. Raises NoSuchFile."""
        first, last = run_files_to_remove(self._fs, self.path, number)
        with suppress(NoSuchFile):  # there may have been no room for the copy
            self._fs.unlink(first)
        self._fs.unlink(last)

    def _run_path(self, number: int) -> str:
        return run_files(self.path, number)[0]

    # --- inputs --------------------------------------------------------------------------------

    def inputs(self, names: Iterable[str] | None = None) -> list[tuple[str, int]]:
        """(topic, partition) of every input, sorted. `names`: as in `readable_runs`."""
        listed = self.names() if names is None else names
        return sorted(found for name in listed if (found := parse_input_name(name)) is not None)

    def input_path(self, topic: str, partition: int) -> str:
        """The directory of an input. Raises InvalidName."""
        return os.path.join(self.path, input_name(check_topic_name(topic), partition))


def read_topic_id(fs: FileSystem, directory: str) -> str | None:
    """The directory's topic id, None if it has none yet. Raises UnsupportedFormat, CorruptLog:
    topic.json cannot be read.
    """
    known = _read_topic(fs, directory)
    return None if known is None else known.topic_id


def read_input_owner(fs: FileSystem, directory: str) -> str | None:
    """The owner of an input's directory at a node, as `TopicDirs` has it. Raises as
    `read_topic_id`.
    """
    known = _read_topic(fs, directory)
    return None if known is None else known.owner


def bind_topic(fs: FileSystem, directory: str, whose: TopicFile) -> None:
    """Note durably which topic, and at a node which input, the directory belongs to. Raises
    OtherTopic, and as `read_topic_id`.
    """
    known = _read_topic(fs, directory)
    if known is None:
        write_json_file(fs, os.path.join(directory, TOPIC_FILE), whose)
    elif known.owner != whose.owner:
        raise OtherTopic(directory, known.owner, whose.owner)


def _read_topic(fs: FileSystem, directory: str) -> TopicFile | None:
    return read_json_file(fs, os.path.join(directory, TOPIC_FILE), TopicFile)
