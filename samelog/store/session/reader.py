"""What is held of an input's runs, and reading it.

Invariant: only whole batches that were taken up are ever handed out.
"""

from __future__ import annotations

import os

from samelog.format.file_names import data_name
from samelog.store.disk.batch_walk import valid_extent
from samelog.store.disk.file_cache import FileCache
from samelog.store.disk.files import File, FileSystem
from samelog.store.disk.tail_memory import LogTail
from samelog.store.session.run import HeldRun, InputFile, RunPosition


class InputReader:
    """The runs of one input directory."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path
        self._fs = fs
        self._runs: dict[int, HeldRun] = {}
        self._files = FileCache(fs)
        self.recent: LogTail | None = None
        """The newest bytes in memory; its layout is the run."""

    # --- looking -------------------------------------------------------------------------------

    def runs(self) -> list[int]:
        """The numbers of the runs of which something is held, in order."""
        return sorted(self._runs)

    def end(self, run: int) -> RunPosition:
        """Where the run's next byte goes; (0, 0) if nothing is held."""
        state = self._runs.get(run)
        return (0, 0) if state is None else state.end

    def ends(self) -> dict[int, RunPosition]:
        """Where each run ends of which something is held."""
        ends = {}
        for number, state in self._runs.items():
            ends[number] = state.end
        return ends

    def start(self, run: int) -> RunPosition:
        """Where the bytes held of the run begin; (0, 0) if nothing is held."""
        state = self._runs.get(run)
        return (0, 0) if state is None else state.start

    def durable(self, run: int) -> RunPosition:
        """Up to where the run is known to be on disk (or was released)."""
        state = self._runs.get(run)
        return (0, 0) if state is None else state.durable

    def sealed_length(self, run: int, roll: int) -> int | None:
        """The length of a file that will never grow; None if it may, or is not held."""
        state = self._runs.get(run)
        held = None if state is None else state.files.get(roll)
        return held.size if held is not None and held.is_sealed else None

    def files(self) -> list[InputFile]:
        """All files, by run and roll."""
        return [
            InputFile(number, held.roll, held.size, held.is_sealed)
            for number, run in sorted(self._runs.items())
            for held in run.files.values()
        ]

    def last_batch(self, run: int) -> tuple[int, int] | None:
        """(start, CRC field) of the last batch in the newest file that has one. None, too, if its
        own bytes are damaged: they say nothing of anybody else's.
        """
        state = self._runs.get(run)
        if state is None:
            return None
        if state.last is None:
            state.last = self._find_last(state)
        return state.last

    def _find_last(self, run: HeldRun) -> tuple[int, int] | None:
        for held in reversed(run.files.values()):
            begin = run.begin_of(held.roll)
            if held.size > begin:
                known = run.last_append
                if known is not None and known[0] == held.roll:
                    begin = known[1]
                key = run.number, held.roll
                file = self._files.find(key) or self._open_file(*key)
                found = valid_extent(file, begin, held.size, verify_crc=False)
                if found.last_start < 0:
                    return None
                last = valid_extent(file, found.last_start, held.size)
                return (last.last_start, last.last_crc) if last.end == held.size else None
        return None

    # --- reading -------------------------------------------------------------------------------

    def read(self, run: int, roll: int, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of a file; fewer, or none, where they are not held.

        Raises:
            NoSuchFile: the writer released the file meanwhile.
            DiskFault: the disk fails.
        """
        count = self._held_from(run, roll, start, stop)
        if count <= 0:
            return b""
        if self.recent is not None:
            data = self.recent.read(run, roll, start, count)
            if data is not None:
                return data
        file = self._files.find((run, roll)) or self._open_file(run, roll)
        return file.pread(count, start)

    def copy(
        self, run: int, roll: int, start: int, stop: int, *, from_file: bool = False
    ) -> bytearray:
        """As `read`, into a buffer that the caller may change. `from_file`: what is in memory is
        not believed. Raises as `read`.
        """
        count = self._held_from(run, roll, start, stop)
        if count <= 0:
            return bytearray()
        if self.recent is not None and not from_file:
            data = self.recent.copy(run, roll, start, count)
            if data is not None:
                return data
        file = self._files.find((run, roll)) or self._open_file(run, roll)
        buffer = bytearray(count)
        del buffer[file.pread_into(buffer, start) :]
        return buffer

    def _held_from(self, run: int, roll: int, start: int, stop: int) -> int:
        """How many of the bytes [start, stop) are held, from the first one on."""
        state = self._runs.get(run)
        held = None if state is None else state.files.get(roll)
        if state is None or held is None:
            return 0
        if roll == state.start[0] and start < state.start[1]:
            return 0  # given up, or released
        return min(stop, held.size) - start

    def _open_file(self, run: int, roll: int) -> File:
        return self._files.open((run, roll), self._path(data_name(run, roll)))

    def _path(self, name: str) -> str:
        return os.path.join(self.path, name)
