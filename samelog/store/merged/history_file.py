"""The archived files of one partition, for ever: records of a fixed size in a file that only grows.

A million of them take 128 MB of disk, and no memory: a record is found by its base offset with a
few reads. Layout in docs/formats.md, "History": a file that was copied has facts about that where
other records have the end of a long reason.

Invariant: records follow each other without a gap, from offset 0 on; one that cannot be read is
never taken for another.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from samelog.format import _kernels as kernels
from samelog.store.disk.files import File, FileSystem, NoSuchFile

_BODY = struct.Struct(">qqqqqqq32s36s")
_CRC = struct.Struct(">I")
RECORD_BYTES = _BODY.size + _CRC.size
REASON_BYTES = 36
_COPIED = struct.Struct(">24sqHBB")
COPIED_REASON_BYTES = 24
_IS_COPIED = 1
"""No byte of a reason: in the place of its last one."""


class CopyNote(NamedTuple):
    """A verified copy: since when (ms), at which target of the replicated list, and its formats, a
    bit for each.
    """

    copied_ms: int
    target: int
    formats: int


class ArchivedFile(NamedTuple):
    """One archived segment: offsets [base, next_offset), timestamps and times in ms (-1: none, or
    not known), its bytes and their SHA-256.
    """

    base: int
    next_offset: int
    size: int
    first_ms: int
    last_ms: int
    rolled_ms: int
    archived_ms: int
    sha256: bytes
    reason: str
    copy: CopyNote | None = None


def encode_record(file: ArchivedFile) -> bytes:
    """One record; a long reason is cut."""
    reason = file.reason.encode()
    if reason[REASON_BYTES - 1 : REASON_BYTES] == bytes([_IS_COPIED]):
        reason = reason[: REASON_BYTES - 1]
    if file.copy is not None:
        reason = _COPIED.pack(reason[:COPIED_REASON_BYTES], *file.copy, _IS_COPIED)
    body = _BODY.pack(*file[:7], file.sha256, reason[:REASON_BYTES])
    return body + _CRC.pack(kernels.crc32c(body))


def decode_record(data: bytes | memoryview) -> ArchivedFile | None:
    """What a record holds; None if it is not one."""
    if len(data) != RECORD_BYTES:
        return None
    body = bytes(data[: _BODY.size])
    if _CRC.unpack_from(data, _BODY.size)[0] != kernels.crc32c(body):
        return None
    *numbers, sha256, reason = _BODY.unpack(body)
    copy: CopyNote | None = None
    if reason[-1] == _IS_COPIED:
        reason, *facts, _ = _COPIED.unpack(reason)
        copy = CopyNote._make(facts)
    text = reason.rstrip(b"\0").decode(errors="ignore")
    return ArchivedFile._make((*numbers, sha256, text, copy))


class HistoryFile:
    """One partition's file. It is made with its first record."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        """Take up what is there; what a crash left of a last record is written over. Raises
        DiskFault, CorruptLog when it is not a regular file.
        """
        self._fs = fs
        self._path = path
        self._file: File | None = None
        self.count = 0
        self.end = 0
        """The next offset that is not archived, as far as is known here."""
        try:
            self._file = fs.open(path, writable=True)
        except NoSuchFile:
            return
        self.count = self._file.size() // RECORD_BYTES
        while self.count and (last := self._at(self.count - 1)) is None:
            self.count -= 1
        if self.count and last is not None:
            self.end = last.next_offset

    def _at(self, number: int) -> ArchivedFile | None:
        if self._file is None:
            return None
        return decode_record(self._file.pread(RECORD_BYTES, number * RECORD_BYTES))

    def begin_at(self, offset: int) -> None:
        """An empty file begins there; nothing if it is not empty."""
        if not self.count:
            self.end = offset

    def append(self, files: list[ArchivedFile]) -> bool:
        """Add what follows; what is there already is passed over. False: there would be a gap.
        Raises DiskFull, DiskFault: nothing was added.
        """
        new = [file for file in files if file.base >= self.end]
        if not new:
            return True
        if new[0].base != self.end:
            return False
        if self._file is None:
            self._file = self._fs.open(self._path, create=True)
        data = b"".join(map(encode_record, new))
        self._file.pwrite(data, self.count * RECORD_BYTES)
        self.count += len(new)
        self.end = new[-1].next_offset
        return True

    def read(self, offset: int, limit: int) -> list[ArchivedFile]:
        """Up to `limit` files from the one on that begins at `offset` or behind it; those that
        cannot be read are left out.
        """
        number, found = self._number_of(offset), list[ArchivedFile]()
        while number < self.count and len(found) < limit:
            known = self._at(number)
            if known is not None:
                found.append(known)
            number += 1
        return found

    def _number_of(self, offset: int) -> int:
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            known = self._nearest(middle, high)
            if known is None or known[1].base >= offset:
                high = middle
            else:
                low = known[0] + 1
        return low

    def _nearest(self, number: int, stop: int) -> tuple[int, ArchivedFile] | None:
        """The first record from `number` on, below `stop`, that can be read."""
        for at in range(number, stop):
            found = self._at(at)
            if found is not None:
                return at, found
        return None

    @property
    def file(self) -> File | None:
        """What there is to be synced."""
        return self._file

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
