"""What the tests of the directory classes have in common: batches, directories, careful openings.

Invariant: batches come from the kernels, which have tests of their own against an oracle.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Sequence
from pathlib import Path

from samelog.format import _kernels as kernels
from samelog.format.marks import InputMark
from samelog.store.disk.files import OsFileSystem
from samelog.store.merged.log import MergedLog
from samelog.store.session.log import InputLog
from samelog.store.session.marks_file import MarksFile

FS = OsFileSystem()
TOPIC_ID = "0a1b2c3d-0000-4000-8000-000000000001"


def batch(seed: int, *, records: int = 1, size: int = 40, timestamp: int = 1000) -> bytes:
    """One batch whose bytes depend on `seed` only."""
    source = random.Random(seed)
    values = [source.randbytes(size) for _ in range(records)]
    return kernels.build_batches(
        values, timestamps=timestamp, batch_bytes=1 << 30, max_record_bytes=1 << 20
    )


def batches(seed: int, count: int) -> list[bytes]:
    """Batches of random shapes, with timestamps that wander."""
    source = random.Random(seed)
    return [
        batch(
            source.getrandbits(32),
            records=source.choice([1, 1, 2, 7]),
            size=source.choice([0, 10, 100, 900, 3000]),
            timestamp=source.choice([-1, 500 + 10 * number, 1000 + source.randrange(3000)]),
        )
        for number in range(count)
    ]


def open_input(path: Path) -> InputLog:
    """An input log of the test topic, with the marks in the folder that it is in. Marks that are
    lost or wrong are replaced, as by a node.
    """
    path.parent.mkdir(exist_ok=True)
    marks = MarksFile(FS, str(path.parent), lost_power=True)
    if not marks.is_there and marks.is_complete:
        write_marks(marks, [])
    known = marks.of(*_key(path))
    log = InputLog.open(FS, path, topic_id=TOPIC_ID, marks=known)
    if known is None or log.damaged:
        save_marks(log)
    return log


def save_marks(log: InputLog) -> None:
    """Write the durable marks of an input into the folder that it is in."""
    path = Path(log.path)
    marks = MarksFile(FS, str(path.parent), lost_power=True)
    write_marks(marks, [InputMark(*_key(path), log.marks())])


def write_marks(marks: MarksFile, inputs: Sequence[InputMark]) -> None:
    """Write marks and wait for the disk."""
    for files in marks.write(inputs, lambda number: True):
        for file in files:
            file.datasync()


def _key(path: Path) -> tuple[int, str]:
    return zlib.crc32(path.name.encode()), path.name


def open_merged(path: Path, *, read_only: bool = False) -> MergedLog:
    """Partition 0 of the test topic."""
    return MergedLog.open(
        FS, path, topic="flights", topic_id=TOPIC_ID, partition=0, read_only=read_only
    )


def unwritten_merged(path: Path) -> MergedLog:
    """The same one as a node has it before its first record."""
    return MergedLog.unwritten(FS, path, topic="flights", topic_id=TOPIC_ID, partition=0)


def sync_input(log: InputLog, run: int) -> None:
    """Make a run durable, as a node's round does."""
    end = log.end(run)
    for file in log.take_dirty():
        file.datasync()
    log.synced(ends={run: end})


def sync_merged(log: MergedLog) -> None:
    """Make a merged log durable, as a node's round does."""
    reached = log.next_offset
    for file in log.take_dirty():
        file.datasync()
    log.mark_durable(reached)


def open_below(path: str) -> list[str]:
    """Open files of this process in a directory, and the directory."""
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return [file for each in links if (file := os.path.realpath(each)).startswith(path)]


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of a directory but the marks and the markers of damage."""
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if path.name != "marks" and "quarantined" not in path.name
    }
