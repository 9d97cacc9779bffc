"""Writes session directories as a publisher does, to the byte and at will."""

from __future__ import annotations

import random
from pathlib import Path

from samelog.format import _kernels as kernels
from samelog.format.file_names import input_name
from samelog.replicator.interfaces import InputName, RollByte
from samelog.store.disk.files import OsFileSystem
from samelog.store.session.directory import SessionDirectory
from samelog.store.session.log import InputLog

FLIGHTS = ("flights", 0)


def batch(*values: bytes) -> bytes:
    """Record batches of these values."""
    return kernels.build_batches(
        list(values), timestamps=1, batch_bytes=1 << 16, max_record_bytes=1 << 20
    )


def random_batches(source: random.Random, count: int, size: int = 200) -> bytes:
    """Some batches, of random values."""
    return b"".join(
        batch(*(source.randbytes(source.randrange(size)) for _ in range(source.randrange(1, 4))))
        for _ in range(count)
    )


class SessionFiles:
    """One session's directory and its writer."""

    def __init__(self, path: Path, name: str = "s", *, session_id: str = "id-1") -> None:
        self.path = path
        self.name = name
        self.fs = OsFileSystem()
        self.directory = SessionDirectory.open_or_create(
            self.fs, path, session=name, session_id=session_id
        )
        self.directory.lock()
        self.run = -1
        self._logs: dict[InputName, InputLog] = {}

    def begin(self, run_id: str | None = None, *, stage: str | None = None) -> int:
        """Begin a run."""
        self.run = self.directory.next_run()
        run_id = run_id or f"run-{self.run}"
        self.directory.begin_run(self.run, run_id=run_id, started_ms=1, stage=stage)
        return self.run

    def log(self, name: InputName = FLIGHTS) -> InputLog:
        """The log of an input."""
        if name not in self._logs:
            path = self.directory.input_path(*name)
            self._logs[name] = InputLog.open(self.fs, path)
        return self._logs[name]

    def append(self, data: bytes, name: InputName = FLIGHTS) -> RollByte:
        """Append to the open run; where it ends now."""
        log = self.log(name)
        log.append(self.run, *log.end(self.run), data)
        return log.end(self.run)

    def roll(self, name: InputName = FLIGHTS) -> None:
        """Seal the file, and begin the next."""
        log = self.log(name)
        log.seal(self.run, *log.end(self.run))

    def end(self) -> None:
        """End the run cleanly."""
        ends = {input_name(*name): log.end(self.run) for name, log in self._logs.items()}
        self.directory.end_run(self.run, {name: end for name, end in ends.items() if end[1]})

    def die(self) -> None:
        """Let go of everything, as if the process were gone."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()
        self.directory.close()

    def file(self, roll: int = 0, name: InputName = FLIGHTS, run: int | None = None) -> Path:
        """The path of a data file."""
        return self.path / input_name(*name) / f"log.{self.run if run is None else run}.{roll}"
