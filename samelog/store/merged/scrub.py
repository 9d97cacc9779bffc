"""Looks for damage at rest in a segment, piece by piece, and mends it with another copy's bytes.

Copies are byte-identical, so that a damaged batch is mended where it is: the rest of the file, its
indexes and whoever reads it are not disturbed. What was damaged is set aside first.

Invariant: only bytes that are not valid are written over, and only by a valid batch with the right
offset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES, told_size
from samelog.store.disk.files import File, FileSystem, NoSuchFile
from samelog.store.disk.quarantine import copy_bytes, free_name

PIECE_BYTES = 1 << 20
NO_BATCH = -1


@dataclass(frozen=True, slots=True)
class ScrubProgress:
    """How far a segment is known to be good: up to `byte`, where the batch with `offset` begins,
    and the running checksum there; where the last batch before that starts (-1: unknown) and its
    CRC field; what is wrong at `byte`, if anything.
    """

    byte: int
    offset: int
    checksum: int
    last_start: int = NO_BATCH
    last_crc: int = 0
    damage: str | None = None


def check_piece(fs: FileSystem, path: str, known: ScrubProgress, stop: int) -> ScrubProgress:
    """Check some whole batches from `known.byte` on, below `stop`, where a batch ends. Raises
    NoSuchFile, DiskFault.
    """
    file = fs.open(path)
    try:
        data = bytes(file.pread(min(PIECE_BYTES, stop - known.byte), known.byte))
        scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
        if scan.end == 0 and scan.short:
            size = min(told_size(data), stop - known.byte)
            data = bytes(file.pread(size, known.byte))
            scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
    finally:
        file.close()
    checked = _check_offsets(data, scan.end, known)
    if checked.damage is None and checked.byte == known.byte:
        return replace(known, damage=scan.error or "a batch reaches beyond the end")
    return checked


def _check_offsets(data: bytes, end: int, known: ScrubProgress) -> ScrubProgress:
    """Offsets lie outside the CRCs."""
    at, offset, last_start, last_crc = 0, known.offset, known.last_start, known.last_crc
    damage = None
    for start, size, records, *_, crc in kernels.batch_headers(data, 0, end):
        if int.from_bytes(data[start : start + 8], "big") != offset:
            damage = f"its offset is not {offset}"
            break
        last_start, last_crc = known.byte + start, crc
        at, offset = start + size, offset + records
    checksum = kernels.crc32c(data[:at], known.checksum)
    return ScrubProgress(known.byte + at, offset, checksum, last_start, last_crc, damage)


def mend(fs: FileSystem, path: str, position: int, batch: bytes) -> None:
    """Write a good batch over a bad one, which is set aside. Raises NoSuchFile, also if the file
    was archived meanwhile, and DiskFault.
    """
    file = fs.open(path, writable=True)
    try:
        if file.size() < position + len(batch):
            raise NoSuchFile(f"{path} was archived")
        _keep(fs, file, position, position + len(batch))
        file.pwrite(batch, position)
        file.datasync()
    finally:
        file.close()


def _keep(fs: FileSystem, file: File, start: int, stop: int) -> None:
    copy = fs.open(free_name(fs, f"{file.path}.from-{start}"), create=True)
    try:
        copy_bytes(file, copy, start, stop, shift=start)
    finally:
        copy.close()
