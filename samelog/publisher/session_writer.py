"""Writes one session directory: one run per life of the process, one growing file per partition.

The run's file is durable before its first byte is written, and is made only with the first append:
a publisher that never appends leaves no run. Earlier runs that died without an end (a crash, a
power loss) are cut to their last whole batch and ended when the directory is opened, so that they
can be shipped to their end.

Invariant: one process writes (a lock on the directory), and no run ever appends to the file of an
older one.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from samelog.format.errors import CorruptLog, DirectoryInUse
from samelog.format.file_names import (
    MARKS_FILE,
    RunNames,
    data_name,
    input_name,
    parse_names,
    sealed_name,
)
from samelog.format.marks import InputMarks, RunMark, encode_marks
from samelog.format.names import check_topic_name
from samelog.format.positions import SessionPosition
from samelog.publisher.budget import DiskBudget, NoRoom, held_bytes, measure
from samelog.publisher.errors import AppendTooLarge, PublisherClosed
from samelog.publisher.output import Output, explained
from samelog.publisher.records import Places, TopicPartition
from samelog.store.disk.disk_errors import DiskFault, NoSpace
from samelog.store.disk.files import File, FileSystem, NoSuchFile
from samelog.store.session.dead_runs import DeadRuns
from samelog.store.session.directory import RunExists, SessionDirectory
from samelog.store.session.log import prepare_input

log = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 0.3
LOCK_RETRY_S = 0.01


@dataclass(slots=True)
class Unsynced:
    """Paths of files, and of directories with new names in them, that are to be made durable.

    Files are synced by name, through a descriptor of their own: the kernel syncs the file, whoever
    wrote it, and a file that was released meanwhile needs no sync any more.
    """

    files: set[str] = field(default_factory=set)
    directories: set[str] = field(default_factory=set)
    marks: dict[str, RunMark] = field(default_factory=dict)
    """Directory of a partition -> up to where its run is durable once all is synced."""

    def sync(self, fs: FileSystem) -> None:
        """Wait until everything in it is durable, or was merged and released. Raises DiskFault."""
        for path in sorted(self.files):
            try:
                file = fs.open(path)
            except NoSuchFile:
                continue
            try:
                file.datasync()
            finally:
                file.close()
        for path in sorted(self.directories):
            fs.sync_directory(path)

    def mark(self, fs: FileSystem) -> None:
        """Write the durable marks, after `sync`. They lag where there is no room for them."""
        for path, mark in self.marks.items():
            with suppress(NoSpace):
                data = encode_marks(InputMarks(runs=[mark]))
                fs.write_atomically(os.path.join(path, MARKS_FILE), data, durable=False)


class SessionWriter:
    """The writer of one session. Not thread-safe: the publisher's lock is held."""

    def __init__(
        self,
        fs: FileSystem,
        directory: SessionDirectory,
        *,
        budget_bytes: int,
        roll_bytes: int,
        dedup_id: str | None = None,
        stage: str | None = None,
    ) -> None:
        self.directory = directory
        self.dedup_id = dedup_id
        self.stage = stage
        self.dedup_base: int | None = None
        """The first dedup number of the next run; to be set before its first write."""
        self._fs = fs
        self._budget = DiskBudget(budget_bytes)
        self._roll_bytes = roll_bytes
        self._run: int | None = None
        self._outputs: dict[TopicPartition, Output] = {}
        self._unsynced = Unsynced()
        self._refusal: str | None = None

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: str,
        *,
        session: str,
        cluster: str | None = None,
        budget_bytes: int,
        roll_bytes: int,
        dedup_id: str | None = None,
        stage: str | None = None,
    ) -> Self:
        """Open or make the session's directory, and end the runs that died in it.

        Raises:
            DirectoryInUse: another process writes this session.
            InvalidName, UnsupportedFormat, CorruptLog, DiskFault
        """
        directory = SessionDirectory.open_or_create(
            fs, path, session=session, session_id=str(uuid.uuid4()), cluster=cluster
        )
        _lock(directory)
        try:
            _end_dead_runs(fs, directory)
        except BaseException:
            directory.close()
            raise
        return cls(
            fs,
            directory,
            budget_bytes=budget_bytes,
            roll_bytes=roll_bytes,
            dedup_id=dedup_id,
            stage=stage,
        )

    # --- writing -------------------------------------------------------------------------------

    def output(self, topic: str, partition: int) -> Output:
        """Where the batches of a partition go; makes nothing on disk yet. Raises InvalidName."""
        name = TopicPartition(topic, partition)
        found = self._outputs.get(name)
        if found is None:
            check_topic_name(topic)
            found = self._outputs[name] = Output(name, self._make_room)
        return found

    def _make_room(self, output: Output, size: int) -> None:
        """Let `output` take `size` more bytes; raises as `Output.write`."""
        if self._refusal is not None:
            raise PublisherClosed(self._refusal)
        if size > self._budget.limit_bytes:
            raise AppendTooLarge(
                f"an append of {size} bytes can never fit into the disk budget of session "
                f"{self.directory.record.session!r}, {self._budget.limit_bytes} bytes"
            )
        try:
            self._open_output(output, size)
            self._grant(output, size)
        except NoSpace as fault:
            raise explained(fault) from fault

    def _open_output(self, output: Output, size: int) -> None:
        run = self._begin_run() if self._run is None else self._run
        if output.file is None:
            self._begin_file(output, run)
        elif output.byte > 0 and output.byte + size > self._roll_bytes:
            self._roll(output)

    def _begin_run(self) -> int:
        """Note the run durably. A number that a copied directory brought along is passed over."""
        while self._run is None:
            number = self.directory.next_run()
            try:
                self.directory.begin_run(
                    number,
                    run_id=secrets.token_hex(16),
                    started_ms=time.time_ns() // 1_000_000,
                    dedup_id=self.dedup_id,
                    dedup_base=self.dedup_base,
                    stage=self.stage,
                )
            except RunExists:
                continue
            self._run = number
        for output in self._outputs.values():
            output.next_roll = 0
        return self._run

    def _open_file(self, output: Output, run: int, roll: int) -> File:
        """A new file of a run. Raises CorruptLog if there are bytes in it already."""
        path = os.path.join(self._input_path(output), data_name(run, roll))
        file = self._fs.open(path, create=True)
        if file.size() > 0:
            file.close()
            raise CorruptLog(path, 0, "holds bytes already, and would be written over")
        self._unsynced.directories.add(self._input_path(output))
        return file

    def _begin_file(self, output: Output, run: int) -> None:
        """Create the next file of a partition. If another file comes before it in the run, the name
        and the sealed name of that file are durable first: a power failure that left the next file
        without them would leave a gap that nothing shows, in the files or in the bytes of one.
        """
        path = self._input_path(output)
        if output.next_roll == 0:
            prepare_input(self._fs, path)
        else:
            self._fs.sync_directory(path)
        output.begin(self._open_file(output, run, output.next_roll), output.next_roll)

    def _roll(self, output: Output) -> None:
        """Seal the file and begin the next. If the sealed name cannot be created, nothing has
        changed. Otherwise nothing is added to the file, and if the next one cannot be created, the
        next write tries again.
        """
        self._seal(output)
        self._begin_file(output, self._current_run())

    def _seal(self, output: Output) -> None:
        if output.file is not None:
            run = self._current_run()
            name = sealed_name(run, output.roll, output.byte)
            self._fs.open(os.path.join(self._input_path(output), name), create=True).close()
            if output.synced < output.byte:
                self._unsynced.files.add(output.file.path)
            output.finish(run)

    def _grant(self, output: Output, size: int) -> None:
        granted = self._budget.reserve(size, output.step_bytes) or self._reserve_recounted(
            output, size
        )
        output.reserve(min(granted, max(size, self._roll_bytes - output.byte)))

    def held_bytes(self) -> int:
        """The bytes of the session that are held because their topic was deleted."""
        return held_bytes(self._fs, self.directory)

    def _reserve_recounted(self, output: Output, size: int) -> int:
        """Measure what is on disk. If that is too much, seal what is open: only then can it go."""
        for other in self._outputs.values():
            other.limit = min(other.limit, other.byte)
        self._budget.recount(measure(self._fs, self.directory))
        granted = self._budget.reserve(size, output.step_bytes)
        if granted == 0:
            for other in self._outputs.values():
                if other.file is not None and other.byte > 0:
                    self._roll(other)
            raise NoRoom(size)
        return granted

    # --- runs ----------------------------------------------------------------------------------

    def end_run(self) -> None:
        """Seal all files and write the run's end; the next append begins a new run."""
        if self._run is None:
            return
        run, ends = self._run, {}
        unsynced = self.take_unsynced()
        for output in self._outputs.values():
            if output.file is not None:
                ends[input_name(*output.name)] = (output.roll, output.byte)
                self._seal(output)
            elif output.end is not None and output.end.run == run:  # a roll failed half-way
                ends[input_name(*output.name)] = (output.end.roll, output.end.byte)
        unsynced.sync(self._fs)
        unsynced.mark(self._fs)
        self.directory.end_run(run, ends)
        self._run = None

    def close(self) -> None:
        """End the run, and let go of the directory."""
        if self._refusal is None:
            try:
                self.end_run()
            finally:
                self.abandon("the publisher is closed")

    def abandon(self, why: str) -> None:
        """Let go of everything unwritten: what a forked child does with its parent's."""
        self._refusal = why
        for output in self._outputs.values():
            output.abandon()
        self.directory.close()

    def _current_run(self) -> int:
        return -1 if self._run is None else self._run

    def _input_path(self, output: Output) -> str:
        return self.directory.input_path(*output.name)

    def positions(self) -> Iterator[tuple[TopicPartition, SessionPosition]]:
        """The ends of all partitions that something was appended to."""
        for name, output in self._outputs.items():
            position = output.position(self._current_run())
            if position is not None:
                yield name, position

    def left_behind(self) -> Places:
        """The ends of earlier runs that still have files: not all of them is known to be merged."""
        found = []
        ends = {run.run: run.end for run in self.directory.readable_runs()[0] if run.end}
        for name in itertools.starmap(TopicPartition, self.directory.inputs()):
            names = parse_names(self._fs.list_directory(self.directory.input_path(*name)))
            for run in names.keys() & ends.keys():
                end = ends[run].get(input_name(*name), (0, 0))
                if names[run].data and (place := _end_of_bytes(names[run], *end)):
                    found.append((name, SessionPosition(run, *place)))
        return found

    # --- durability ----------------------------------------------------------------------------

    def take_unsynced(self) -> Unsynced:
        """What was written since the last call, to be synced by the caller."""
        taken, self._unsynced = self._unsynced, Unsynced()
        for output in self._outputs.values():
            if output.file is not None and output.synced < output.byte:
                taken.files.add(output.file.path)
                mark = RunMark(self._current_run(), output.roll, output.byte, output.synced)
                taken.marks[self._input_path(output)] = mark
                output.synced = output.byte
        return taken


def _end_of_bytes(names: RunNames, roll: int, byte: int) -> tuple[int, int] | None:
    """Behind the last byte before an end; None if no file that is here has one."""
    if byte or roll not in names.data:
        return (roll, byte) if byte else None
    return max(((r, n) for r, n in names.sealed.items() if r < roll and n), default=None)


def _lock(directory: SessionDirectory) -> None:
    """Become the writer. A sidecar that looks whether there is one holds the lock for a moment."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            return directory.lock()
        except DirectoryInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOCK_RETRY_S)


def _end_dead_runs(fs: FileSystem, directory: SessionDirectory) -> None:
    """Cut the torn tails in a locked session directory, and write the missing ends of its runs.
    Damaged bytes stay in place; the shipper skips them. A run whose record cannot be read waits for
    an operator, and one whose file cannot be read for the next opening.

    Raises CorruptLog, UnsupportedFormat, DiskFault.
    """
    session, (runs, damaged) = directory.record.session, directory.readable_runs()
    for damage in damaged:
        log.error("a run of session %r is not shipped: %s", session, damage)
    ends: dict[int, dict[str, tuple[int, int]]] = {run.run: {} for run in runs if run.end is None}
    for topic, partition in directory.inputs() if ends else ():
        path, name = directory.input_path(topic, partition), input_name(topic, partition)
        for run, end in _dead_ends(fs, path, ends.keys(), session).items():
            if end is None:
                del ends[run]
            else:
                ends[run][name] = end
    for run, known in ends.items():
        directory.end_run(run, known)


def _dead_ends(
    fs: FileSystem, path: str, dead: Iterable[int], session: str
) -> dict[int, tuple[int, int] | None]:
    """Return where dead runs end in an input, or None if its files cannot be read."""
    names, ends = parse_names(fs.list_directory(path)), dict[int, tuple[int, int] | None]()
    repaired = DeadRuns(fs, path, [])
    for run in names.keys() & dead:
        try:
            ends[run] = repaired.end_of(run, names[run])
        except DiskFault as fault:
            log.error("run %d of session %r stays without an end: %s", run, session, fault)
            ends[run] = None
    for damage in repaired.damaged:
        log.error("a file of session %r is damaged: %s", session, damage)
    return ends
