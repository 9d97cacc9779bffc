"""Where the runs of a publisher end that died without an end: a crash, a loss of power.

Only a torn tail is cut: bytes at the end of a run's newest file that are no batch, with nothing
that shows damage (`store.session.damage`). Damage stays where it is; the process that ships keeps a
copy of it, reports it, and ships what is intact behind it.

Invariant: no byte below a durable mark, and none before an intact batch, is cut.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from samelog.format.errors import CorruptLog
from samelog.format.file_names import RunNames, data_name
from samelog.format.marks import InputMarks, RunMark
from samelog.store.disk.batch_walk import valid_extent
from samelog.store.disk.dirty_files import read_marks
from samelog.store.disk.files import FileSystem
from samelog.store.disk.quarantine import keep_copy
from samelog.store.session.backlog_mark import publisher_mark
from samelog.store.session.damage import find_damage
from samelog.store.session.run import RunPosition


@dataclass(slots=True)
class DeadRuns:
    """The dead runs of one input directory of a publisher."""

    fs: FileSystem
    directory: str
    damaged: list[CorruptLog]

    def end_of(self, run: int, names: RunNames) -> RunPosition:
        """Cut the torn tail of a run, durably; where the run ends. Raises DiskFault."""
        marks = read_marks(self.fs, self.directory, InputMarks)
        mark = publisher_mark(self.fs, self.directory, run) or RunMark(run, 0, 0, 0)
        roll = max((*names.data, *names.sealed), default=0)
        if roll not in names.data:
            return self._missing(run, names, roll, mark)
        end = self._intact_end(run, names, roll, mark)
        if end[0] == roll and roll not in names.sealed:
            self._cut(run, end, keep=marks is None)
        return end

    def _missing(self, run: int, names: RunNames, roll: int, mark: RunMark) -> RunPosition:
        """The newest file is gone, and its name says how long it was."""
        known = max((roll, names.sealed.get(roll, 0)), (mark.roll, mark.byte))
        if not names.data:
            return known  # all of it was released
        self._note(run, (roll, 0), "the file is missing")
        return known

    def _intact_end(self, run: int, names: RunNames, roll: int, mark: RunMark) -> RunPosition:
        """The end of the last intact batch, or of the damage behind it."""
        known = mark.roll, mark.byte
        path = os.path.join(self.directory, data_name(run, roll))
        file = self.fs.open(path)
        try:
            size = min(file.size(), names.sealed.get(roll, file.size()))
            byte = mark.hint if mark.roll == roll and mark.hint <= size else 0
            while True:
                byte = valid_extent(file, byte, size).end
                if byte == size and known <= (roll, byte):
                    return roll, names.sealed.get(roll, byte)
                found = find_damage(
                    lambda _: file,
                    names,
                    end=(roll, byte),
                    known=known,
                )
                if found is None:
                    return roll, byte
                self._note(run, found.start, found.reason)
                if found.stop[0] != roll or found.stop[1] >= size:
                    return found.stop
                byte = found.stop[1]
        finally:
            file.close()

    def _note(self, run: int, start: RunPosition, reason: str) -> None:
        path = os.path.join(self.directory, data_name(run, start[0]))
        self.damaged.append(CorruptLog(path, start[1], reason))

    def _cut(self, run: int, end: RunPosition, *, keep: bool) -> None:
        """Remove what is behind the end, if anything is. `keep`: there are no marks that could tell
        whether it is damage, so a copy of it stays.
        """
        path = os.path.join(self.directory, data_name(run, end[0]))
        file = self.fs.open(path, writable=True)
        try:
            if file.size() > end[1]:
                if keep and (copy := keep_copy(self.fs, file, end[1])) is not None:
                    reason = f"no record batch, and there are no marks; what was cut is in {copy}"
                    self.damaged.append(CorruptLog(path, end[1], reason))
                file.truncate(end[1])
            file.datasync()
        finally:
            file.close()
