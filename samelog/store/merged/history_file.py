"""The archived files of one partition, for ever: a file of records (`format.history`) that only
grows.

A million of them take 128 MB of disk, and no memory: a record is found by its base offset with a
few reads.

Invariant: records follow each other without a gap, from offset 0 on; one that cannot be read is
never taken for another.
"""

from __future__ import annotations

from samelog.format.history import RECORD_BYTES, ArchivedFile, decode_record, encode_record
from samelog.store.disk.files import File, FileSystem, NoSuchFile


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
        Raises NoSpace, DiskFault: nothing was added.
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
        """The file that is to be synced."""
        return self._file

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
