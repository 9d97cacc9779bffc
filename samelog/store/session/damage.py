"""Damage in a publisher's log: what tells it from a torn tail, and where intact batches follow.

A crash leaves a torn tail: the newest file of a run ends in bytes that are no batch. Anywhere else,
bytes that are no batch are damage. Evidence is a later file or a sealed name (the file was
complete), an intact batch behind, the end that the writer noted, or a durable mark above.

Invariant: an intact batch is never taken for damaged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from samelog.format import _kernels as kernels
from samelog.format.batch import HEADER_BYTES, HELD_BATCH_BYTES, LENGTH_PREFIX_BYTES, told_size
from samelog.format.directory_files import DamageFile, RunByte
from samelog.format.file_names import RunNames, data_name
from samelog.store.disk.batch_walk import ReadFile, valid_extent
from samelog.store.disk.files import File, FileSystem, NoSuchFile
from samelog.store.disk.json_files import read_json_file, write_json_file
from samelog.store.disk.quarantine import copy_bytes, free_name
from samelog.store.session.run import RunPosition

_LOOKS_LIKE_BATCH = re.compile(rb"(?=\x00{8}.{4}\x00{4}\x02)", re.DOTALL)
"""Base offset and leader epoch are 0 in a session log, and magic is 2."""
_DAMAGE_FILE = re.compile(r"damage\.(0|[1-9][0-9]{0,18})\.json")
_WINDOW_BYTES = 4 << 20
_OVERLAP_BYTES = HEADER_BYTES - 1


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged range of one run and input: intact batches follow at `stop`, or the run ends."""

    start: RunPosition
    stop: RunPosition
    reason: str


def find_damage(
    open_file: Callable[[int], ReadFile], names: RunNames, *, end: RunPosition, known: RunPosition
) -> Damage | None:
    """Judge the bytes at `end`, where no valid batch begins; None: they are a torn tail, or the
    end of the run. `open_file`: opens the file of a roll; `known`: up to where the run is known to
    reach.

    `names` may lag behind the directory. Raises DiskFault.
    """
    roll = end[0]
    later = min((other for other in names.data if other > roll), default=None)
    if roll not in names.data:
        if later is None and known <= end:
            return None
        return Damage(end, known if later is None else (later, 0), "the file is missing")
    try:
        file = open_file(roll)
    except NoSuchFile:
        return None  # removed since the directory was listed
    length = names.sealed.get(roll)
    size = file.size() if length is None else min(length, file.size())
    return _judge(file, size, end, known, _successor(roll, length, later))


def _successor(roll: int, length: int | None, later: int | None) -> RunPosition | None:
    """Where a complete file is followed; None: the file may grow."""
    if later is not None:
        return later, 0
    return None if length is None else (roll + 1, 0)


def _judge(
    file: ReadFile, size: int, end: RunPosition, known: RunPosition, successor: RunPosition | None
) -> Damage | None:
    roll, byte = end
    found = find_batch_behind(file, byte, size)
    stop = None if found is None else (roll, found)
    if stop is None:
        stop = successor if successor is not None else max(known, (roll, size))
        if successor is None and known <= end:
            return None
    again = valid_extent(file, byte, size)  # what was being written is whole by now
    if again.end > byte or stop <= end:
        return None
    return Damage(end, stop, again.reason or f"the file has {size} bytes")


def find_batch_behind(file: ReadFile, start: int, stop: int) -> int | None:
    """Find the first intact batch behind the damaged one at `start`; None: there is none.

    The damaged batch's own length counts if an intact batch follows there: a record may hold bytes
    that look like a batch.
    """
    told: int | None = start + told_size(file.pread(LENGTH_PREFIX_BYTES, start))
    if told is not None and not _is_batch(file, told, stop):
        told = None
    for place in _candidates(file, start + 1, stop if told is None else told):
        if told is None or valid_extent(file, place, told).end == told:
            return place
    return told


def _candidates(file: ReadFile, start: int, stop: int) -> Iterator[int]:
    while start < stop:
        window = file.pread(min(_WINDOW_BYTES, stop - start), start)
        for match in _LOOKS_LIKE_BATCH.finditer(window):
            if _is_batch(file, start + match.start(), stop):
                yield start + match.start()
        if len(window) <= _OVERLAP_BYTES:
            return
        start += len(window) - _OVERLAP_BYTES


def _is_batch(file: ReadFile, start: int, stop: int) -> bool:
    size = told_size(file.pread(LENGTH_PREFIX_BYTES, start))
    if start + size > stop:
        return False
    data = file.pread(size, start)
    return kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES, max_batches=1).end == size


# --- what is kept, and noted ----------------------------------------------------------------------


def keep_damaged(fs: FileSystem, directory: str, start: RunByte, stop: int | None) -> str:
    """Copy a damaged range out of its file, durably, before the file can be released: up to byte
    `stop`, or its end. Return the name of the copy, which is empty if no bytes are left: the loss
    is reported as long as the copy exists. Raises DiskFault, NoSpace.
    """
    run, roll, begin = start
    path = os.path.join(directory, data_name(run, roll))
    name = free_name(fs, f"{path}.from-{begin}")
    copy = fs.open(name, create=True)
    try:
        with suppress(NoSuchFile):
            _copy_range(fs, path, copy, begin, stop)
        copy.datasync()
    finally:
        copy.close()
    fs.sync_directory(directory)
    return name


def _copy_range(fs: FileSystem, path: str, copy: File, begin: int, stop: int | None) -> None:
    file = fs.open(path)
    try:
        end = file.size() if stop is None else min(stop, file.size())
        copy_bytes(file, copy, begin, end, shift=begin)
    finally:
        file.close()


def read_damage(fs: FileSystem, session: str, run: int) -> DamageFile:
    """What is noted of a run's damage. Raises CorruptLog, UnsupportedFormat."""
    found = read_json_file(fs, _damage_path(session, run), DamageFile)
    return DamageFile(run=run) if found is None else found


def write_damage(fs: FileSystem, session: str, damage: DamageFile) -> None:
    """Note it durably. Raises DiskFault, NoSpace."""
    write_json_file(fs, _damage_path(session, damage.run), damage)


def damaged_runs(names: Iterable[str]) -> list[int]:
    """The runs whose damage is noted in a session's directory, which has these names."""
    return sorted(int(match[1]) for name in names if (match := _DAMAGE_FILE.fullmatch(name)))


def _damage_path(session: str, run: int) -> str:
    return os.path.join(session, f"damage.{run}.json")
