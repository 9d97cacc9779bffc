"""Reads a session's files back."""

from __future__ import annotations

import os
from pathlib import Path

from samelog import Record
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.format.directory_files import RunFile
from samelog.format.file_names import data_name, parse_names
from samelog.store.disk.files import OsFileSystem
from samelog.store.session.directory import SessionDirectory

FS = OsFileSystem()


def runs(session: Path) -> list[RunFile]:
    """The runs of a session's directory."""
    return SessionDirectory.open(FS, session).runs()


def raw(session: Path, topic: str = "t", partition: int = 0, run: int | None = None) -> bytes:
    """The whole batches of one partition, of one run or of all."""
    folder = session / f"{topic}-{partition}"
    names = parse_names(FS.list_directory(folder))
    files = [folder / data_name(n, roll) for n in sorted(names) for roll in sorted(names[n].data)]
    wanted = [file for file in files if run is None or file.name.startswith(f"log.{run}.")]
    return b"".join(_whole_batches(file.read_bytes()) for file in wanted)


def _whole_batches(data: bytes) -> bytes:
    return data[: kernels.scan(data).end]


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
