"""Keeps the durable marks of a replica's session logs, and has them written and synced.

Invariant: one write is under way at a time; what it did not write is written with the next one. A
log's marks are written only under the topic that the log was opened for, while that topic exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice

from samelog.format.marks import InputMark, RunMark
from samelog.runtime.disk.syncer import Syncer
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.sessions import Input
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import FileSystem
from samelog.store.session.log import InputLog
from samelog.store.session.marks_file import RECORD_INPUTS, MarksFile


class SessionMarks:
    """The marks of one session store."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        machine: StateMachine,
        opened: Mapping[int, InputLog],
        *,
        lost_power: bool,
    ) -> None:
        """`opened`: the logs that are open, by input."""
        self._machine = machine
        self._opened = opened
        self._file = MarksFile(fs, directory, lost_power=lost_power)
        self._saving = asyncio.Lock()
        self.changed: dict[int, None] = {}
        """Inputs whose marks on disk may be older than what is known."""
        self.are_all_open = False
        """Whether every input that has a directory was opened since the start."""

    @property
    def is_busy(self) -> bool:
        """Whether marks are to be written, or are being written."""
        return bool(self.changed) or self._saving.locked()

    def of(self, entry: Input) -> Sequence[RunMark] | None:
        """The marks of an input's runs; None: there are none, though there may have been."""
        partition = self._machine.state.partitions.by_number[entry.partition]
        return self._file.of(entry.number, _whose(entry, partition))

    def opened(self, number: int, *, is_damaged: bool) -> None:
        """An input's log was opened: write its marks if those on disk are wrong or lost."""
        if is_damaged or not self._file.is_complete:
            self.changed[number] = None

    async def begin(self, syncer: Syncer) -> None:
        """Make the file durable if there is none: before the first input has bytes. Raises
        DiskFault.
        """
        if not self._file.is_there:
            await self._write([], syncer)

    def begin_now(self) -> None:
        """As `begin`, but wait for the disk here, unless marks may have been lost. Raises
        DiskFault.
        """
        if self._file.is_complete and not (self._file.is_there or self._saving.locked()):
            self._write_now([])

    async def save(self, syncer: Syncer) -> None:
        """Write the marks that are newer than those on disk. Raises DiskFault."""
        while self.changed and not self._saving.locked():
            numbers = [*islice(self.changed, RECORD_INPUTS)]
            try:
                await self._write(self._take(numbers), syncer)
            except NoSpace:
                self.changed.update(dict.fromkeys(numbers))
                raise
        if self.are_all_open and not self.changed:
            self._file.is_complete = True

    def save_now(self) -> None:
        """As `save`, but wait for the disk here; on a full one older marks stay. Raises
        DiskFault.
        """
        if marks := self._take([*self.changed]):
            with suppress(NoSpace):
                self._write_now(marks)

    def _take(self, numbers: Iterable[int]) -> list[InputMark]:
        state, marks = self._machine.state, []
        for number in numbers:
            del self.changed[number]
            held, entry = self._opened.get(number), state.sessions.inputs.get(number)
            if held is None or entry is None:
                continue
            partition = state.partitions.by_number.get(entry.partition)
            if partition is not None and partition.topic_id == held.topic_id:
                marks.append(InputMark(number, _whose(entry, partition), held.marks()))
        return marks

    async def _write(self, marks: Sequence[InputMark], syncer: Syncer) -> None:
        async with self._saving:
            if self._file.is_there and not marks:
                return
            with closing(self._file.write(marks, self._is_known)) as rounds:
                for files in rounds:
                    await syncer.sync(files)
                    await asyncio.sleep(0)

    def _write_now(self, marks: Sequence[InputMark]) -> None:
        for files in self._file.write(marks, self._is_known):
            for file in files:
                file.datasync()

    def _is_known(self, number: int) -> bool:
        """Whether there is an input of this number, or may be once all entries are applied."""
        state = self._machine.state
        return number in state.sessions.inputs or number >= state.sessions.next_input


def _whose(entry: Input, partition: Partition) -> str:
    """Name an input beyond its number, which may be another input's after a recovery."""
    return f"{entry.session}/{partition.topic_id}-{partition.index}"
