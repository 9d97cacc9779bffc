"""An index of keys in a small file of the file system that it is given: for simulated disks, and as
the plain twin of the real one. Every change replaces the file, so it is as durable as that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from samelog.format import _kernels as kernels
from samelog.format.errors import CorruptLog
from samelog.store.disk.files import FileSystem
from samelog.store.keys.key_store import SWEPT_AT_ONCE, KeyEntry

LIMIT_BYTES = 1 << 26


class Kept(msgspec.Struct):
    """What is in the file."""

    end: int = 0
    sums: dict[int, int] = {}
    entries: dict[bytes, int] = {}


class FileKeys:
    """Implements KeyStore."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        fs.make_directory(path)
        self._fs = fs
        self._path = f"{path}/data"
        known = fs.exists(self._path)
        data = fs.read_file(self._path, LIMIT_BYTES) if known else b""
        self._kept = self._read(data) if data else Kept()
        self.end, self.sums = self._kept.end, dict(self._kept.sums)

    @property
    def count(self) -> int:
        return len(self._kept.entries)

    def glance(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Nothing is in memory: lookups are beside the event loop."""
        return {}

    def find(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        known = self._kept.entries
        return {key: known[key] for key in keys if key in known}

    def advance(self, entries: Sequence[KeyEntry], end: int, sums: Mapping[int, int]) -> None:
        kept = Kept(end, self.sums | dict(sums), self._kept.entries | dict(entries))
        self._save(kept)
        self.end, self.sums = kept.end, dict(kept.sums)

    def _read(self, data: bytes) -> Kept:
        if kernels.crc32c(data[4:]).to_bytes(4, "big") != data[:4]:
            raise CorruptLog(self._path, 0, "rotten")
        return msgspec.msgpack.decode(data[4:], type=Kept)

    def _save(self, kept: Kept) -> None:
        data = msgspec.msgpack.encode(kept)
        self._fs.write_atomically(self._path, kernels.crc32c(data).to_bytes(4, "big") + data)
        self._kept = kept

    def page(self, behind: bytes, most: int) -> list[KeyEntry]:
        known = self._kept.entries
        return [(key, known[key]) for key in sorted(known) if key > behind][:most]

    def sweep(self, behind: bytes, floor: int) -> bytes | None:
        found = self.page(behind, SWEPT_AT_ONCE)
        gone = {key for key, offset in found if offset < floor}
        left = {key: offset for key, offset in self._kept.entries.items() if key not in gone}
        self._save(Kept(self.end, self.sums, left))
        return found[-1][0] if len(found) == SWEPT_AT_ONCE else None

    def close(self) -> None:
        pass
