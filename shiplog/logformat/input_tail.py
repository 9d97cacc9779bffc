"""How a reader in another process follows the files of an input that somebody else writes.

Invariant: the files are never changed. A batch that is short or invalid may still be being written,
so it means "not yet" and is looked at again; whole valid batches before it count.
"""

from __future__ import annotations

import os

from shiplog.logformat.batch_walk import extent
from shiplog.logformat.directory_watch import DirectoryWatch
from shiplog.logformat.file_cache import FileCache
from shiplog.logformat.files import FileSystem, NoSuchFile
from shiplog.logformat.input_names import RunNames, data_name, parse_names
from shiplog.logformat.input_run import HeldFile, InputMarks, Position, Run


class InputTail:
    """Keeps `runs` up to date with the directory."""

    def __init__(
        self, fs: FileSystem, directory: str, files: FileCache, runs: dict[int, Run]
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._files = files
        self._runs = runs
        self._watch = DirectoryWatch(fs, directory)
        self._names: dict[int, RunNames] = {}

    def refresh(self, marks: InputMarks | None = None) -> bool:
        """Take up what is new; whether anything is. `marks` spare checks below them."""
        before = {number: (run.start, run.end) for number, run in self._runs.items()}
        if self._watch.needs_listing():
            self._list()
        hints = {} if marks is None else {mark.run: mark for mark in marks.runs}
        for number, run in self._runs.items():
            mark = hints.get(number)
            self._follow(run, None if mark is None else (mark.roll, mark.hint))
        return before != {number: (run.start, run.end) for number, run in self._runs.items()}

    def _list(self) -> None:
        self._names = parse_names(self._fs.list_directory(self._directory))
        for number in self._runs.keys() - self._names.keys():
            del self._runs[number]
        for number in sorted(self._names):
            names = self._names[number]
            if not names.data:
                continue
            start = max(names.start, (min(names.data), 0))
            run = self._runs.setdefault(number, Run(number, start, durable=start))
            for roll in [roll for roll in run.files if roll not in names.data or roll < start[0]]:
                run.remove(roll)
                self._files.drop((number, roll))
            if start != run.start:
                self._move_start(run, start)

    @staticmethod
    def _move_start(run: Run, start: Position) -> None:
        """The writer released, or gave up, what was below."""
        run.start = run.durable = start
        run.last = run.last_append = None
        held = run.files.get(start[0])
        if held is not None:
            held.size = max(held.size, start[1])

    def _follow(self, run: Run, hint: tuple[int, int] | None) -> None:
        """Add whole batches, file after file, as far as they reach."""
        names = self._names.get(run.number)
        newest = run.newest
        roll = run.start[0] if newest is None else newest.roll
        while names is not None and roll in names.data:
            held = run.files.get(roll) or run.add(HeldFile(roll, run.begin_of(roll)))
            if not held.is_sealed and not self._extend(run, held, names.sealed.get(roll), hint):
                return
            roll += 1

    def _extend(
        self, run: Run, held: HeldFile, length: int | None, hint: tuple[int, int] | None
    ) -> bool:
        """Take up new batches of one file; whether it is sealed now."""
        key = (run.number, held.roll)
        try:
            path = os.path.join(self._directory, data_name(*key))
            file = self._files.get(key, path)
        except NoSuchFile:
            return False  # released since the listing
        size = file.size()
        if size > held.size:
            begin = held.size
            if hint is not None and hint[0] == held.roll and begin < hint[1] <= size:
                begin = hint[1]
            checked = extent(file, begin, size if length is None else min(size, length))
            held.size = checked.end
            if checked.last_start >= 0:
                run.last = (checked.last_start, checked.last_crc)
                run.last_append = (held.roll, checked.last_start)
        held.is_sealed = length is not None and held.size == length
        return held.is_sealed
