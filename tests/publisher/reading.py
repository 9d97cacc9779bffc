"""Reads a session's files back, with the log format's own reader."""

from __future__ import annotations

import os
from pathlib import Path

from shiplog import Record
from shiplog.logformat import _kernels as kernels
from shiplog.logformat.compression import decompress
from shiplog.logformat.files import OsFileSystem
from shiplog.logformat.input_log import InputLog
from shiplog.logformat.session_dir import RunFile, SessionDirectory

FS = OsFileSystem()


def runs(session: Path) -> list[RunFile]:
    """The runs of a session's directory."""
    return SessionDirectory.open(FS, session).runs()


def raw(session: Path, topic: str = "t", partition: int = 0, run: int | None = None) -> bytes:
    """The whole batches of one partition, of one run or of all."""
    log = InputLog.open(FS, session / f"{topic}-{partition}", read_only=True)
    try:
        return b"".join(
            log.read(file.run, file.roll, 0, file.size)
            for file in log.files()
            if run in (None, file.run)
        )
    finally:
        log.close()


def records(session: Path, topic: str = "t", partition: int = 0) -> list[Record]:
    """The records of one partition, of all runs."""
    data = raw(session, topic, partition)
    return kernels.decode_records(data, 0, len(data), topic, partition, decompress)


def values(session: Path, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    """Their values."""
    return [record.value for record in records(session, topic, partition)]


def batch_sizes(session: Path, topic: str = "t", partition: int = 0) -> list[int]:
    """How many records each batch has."""
    data = raw(session, topic, partition)
    return [header[2] for header in kernels.batch_headers(data, 0, len(data))]


def log_names(session: Path, topic: str = "t", partition: int = 0) -> list[str]:
    """The names of the log files and their markers."""
    folder = session / f"{topic}-{partition}"
    return sorted(name for name in os.listdir(folder) if name.startswith("log."))


def release(session: Path, *names: str, topic: str = "t", partition: int = 0) -> None:
    """Remove log files, as a push client does when they are merged."""
    for name in names:
        (session / f"{topic}-{partition}" / name).unlink()
