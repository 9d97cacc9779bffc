"""The durable marks of all session logs of a replica at a node, in one file that grows.

What changed is appended as one record. Once the file is several times as long as what it says, a
new one takes its place. The caller has files synced outside of the event loop; a record is written
once the one before it is durable, so only the last record can be torn.

Invariant: the file says no less than it did before, whenever the host loses power.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress

from samelog.format.errors import CorruptLog
from samelog.format.file_names import SESSION_MARKS_FILE
from samelog.format.marks import (
    InputMark,
    MarksRecord,
    RunMark,
    encode_marks,
    find_session_marks,
)
from samelog.store.disk.files import TEMPORARY_SUFFIX, File, FileSystem

REPLACED_FROM_BYTES = 1 << 20
"""A shorter file only grows."""
GROWTH = 4
"""A file is replaced that is so many times as long as it was when it was made."""
RECORD_INPUTS = 512
"""Inputs in one record: encoding them takes a millisecond."""
_LIMIT_BYTES = 1 << 30


class MarksFile:
    """One replica's."""

    def __init__(self, fs: FileSystem, directory: str, *, lost_power: bool) -> None:
        """Read the file in a directory that exists. `lost_power`: whether the host may have lost
        written bytes since.
        """
        self._fs = fs
        self._directory = directory
        self._path = os.path.join(directory, SESSION_MARKS_FILE)
        self._inputs: dict[int, InputMark] = {}
        self._end = 0
        """Where the next record goes; 0: into a new file."""
        self._first_size = 0
        self.is_complete = False
        """Whether an input without marks is new; else its marks may have been lost."""
        self._read(lost_power=lost_power)

    def _read(self, *, lost_power: bool) -> None:
        if not self._fs.exists(self._path):
            names = self._fs.list_directory(self._directory)
            self.is_complete = all(name.startswith(SESSION_MARKS_FILE) for name in names)
            return
        data = b""
        with suppress(CorruptLog):
            data = self._fs.read_file(self._path, _LIMIT_BYTES)
        found = find_session_marks(data)
        for record in found.records:
            self._inputs.update((mark.number, mark) for mark in record.inputs)
        if found.records:
            is_intact = found.end == len(data) or (lost_power and not found.is_damaged)
            self.is_complete = found.records[-1].is_complete and is_intact
            self._end = found.end if found.end == len(data) else 0

    def of(self, number: int, whose: str) -> Sequence[RunMark] | None:
        """The marks of an input's runs; None: there are none, though there may have been."""
        known = self._inputs.get(number)
        if known is not None and known.whose == whose:
            return known.runs
        return () if self.is_complete else None

    @property
    def is_there(self) -> bool:
        """Whether there is a file to add records to."""
        return self._end > 0

    def write(
        self, marks: Sequence[InputMark], is_known: Callable[[int], bool]
    ) -> Generator[list[File], None, None]:
        """Write newer marks. Each time, the yielded files must be synced before it continues.
        `is_known`: whether an input may still exist. Raises NoSpace, DiskFault.
        """
        self._inputs.update((mark.number, mark) for mark in marks)
        end, self._end = self._end, 0  # until all of this is done
        is_short = 0 < end < max(REPLACED_FROM_BYTES, GROWTH * self._first_size)
        if is_short and self._fs.exists(self._path):
            with closing(self._fs.open(self._path, writable=True)) as file:
                end = self._append(file, end, marks)
                yield [file]
        else:
            for number in [each for each in self._inputs if not is_known(each)]:
                del self._inputs[number]
            end = yield from self._rewrite([*self._inputs.values()])
            self._first_size = end
        self._end = end

    def _rewrite(self, marks: list[InputMark]) -> Generator[list[File], None, int]:
        temporary, end = self._path + TEMPORARY_SUFFIX, 0
        if self._fs.exists(temporary):
            self._fs.unlink(temporary)  # left by a crash
        with closing(self._fs.open(temporary, writable=True, create=True)) as file:
            for at in range(0, max(len(marks), 1), RECORD_INPUTS):
                end = self._append(file, end, marks[at : at + RECORD_INPUTS])
                yield []
            yield [file]
        self._fs.rename(temporary, self._path)
        with closing(self._fs.open_directory(self._directory)) as names:
            yield [names]
        return end

    def _append(self, file: File, end: int, marks: Sequence[InputMark]) -> int:
        record = MarksRecord(inputs=[*marks], is_complete=self.is_complete)
        data = encode_marks(record)
        file.pwrite(data, end)
        return end + len(data)
