"""The file of an LMDB environment, read beside LMDB, so that a lookup waits for the disk only where
it may.

LMDB changes no page of a state that a transaction reads. So a `KeySnapshot` holds such a
transaction, and the page that the state's tree begins with. There are two layouts: that of LMDB
0.9, and that of 1.0. An environment of any other one is left to LMDB.

Invariant: a state is found by the number of its transaction, so what is read is of that state only.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import lmdb

FILE = "data.mdb"
ABSENT, UNTOLD = -1, -2
"""Instead of an offset: there is no such key; only the disk knows."""
_MAGIC = 0xBEEFC0DE
_LAYOUTS = ((16, 1, 0), (24, 3, 24))
"""(bytes of a page's header, version of the format, from where in a page places count)."""
_HEAD_BYTES = 256
_META_BYTES = 136
_ROOT_AT, _NUMBER_AT, _PAGE_BYTES_AT = 112, 128, 24
_NOTHING = (1 << 64) - 1
"""The root of a tree that has no page."""
_PAGE_BYTES = tuple(1 << bits for bits in range(9, 17))


class KeyPages:
    """The file of one environment."""

    def __init__(self, descriptor: int, layout: tuple[int, int, int]) -> None:
        """`layout`: as `look_up` takes it."""
        from samelog.store.keys._key_pages import look_up  # only nodes with such topics need it

        self._descriptor = descriptor
        self._layout = layout
        self._look_up = look_up

    @classmethod
    def open(cls, path: str) -> KeyPages | None:
        """That in a folder; None: its layout is not known here. Raises OSError."""
        descriptor = os.open(os.path.join(path, FILE), os.O_RDONLY | os.O_CLOEXEC)
        if hasattr(os, "posix_fadvise"):  # no page says which one is next
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        layout = _layout(os.pread(descriptor, _HEAD_BYTES, 0))
        if layout is None:
            os.close(descriptor)
            return None
        return cls(descriptor, layout)

    def root(self, transaction: int) -> int | None:
        """The page that the tree of a transaction's state begins with, as long as that state is one
        of the newest two; else None. Raises OSError.
        """
        page_bytes, header_bytes, _ = self._layout
        for number in range(2):
            meta = os.pread(self._descriptor, _META_BYTES, number * page_bytes + header_bytes)
            if len(meta) == _META_BYTES and _number(meta, _NUMBER_AT) == transaction:
                return _number(meta, _ROOT_AT)
        return None

    def find(
        self, root: int, keys: list[bytes], *, waits: bool, patience: int | None = None
    ) -> list[int]:
        """The offsets of keys, or ABSENT, UNTOLD; `patience`: what is behind so many of which that
        is not told is not looked at; None: all are. Raises OSError, ValueError.
        """
        if root == _NOTHING:
            return [ABSENT] * len(keys)
        most = len(keys) if patience is None else patience
        return self._look_up(self._descriptor, root, self._layout, keys, waits, most)

    def close(self) -> None:
        """Nobody reads it any more."""
        os.close(self._descriptor)


class KeySnapshot:
    """One state of an environment. Whoever uses it holds it; one at a time says so."""

    def __init__(self, reading: lmdb.Transaction[bytes], pages: KeyPages, root: int) -> None:
        self._reading = reading
        self._pages = pages
        self._root = root
        self._holders = 1

    def find(self, keys: list[bytes], *, waits: bool, patience: int | None = None) -> list[int]:
        """The offsets of keys, or ABSENT; UNTOLD too, unless it waits. Raises OSError,
        ValueError.
        """
        return self._pages.find(self._root, keys, waits=waits, patience=patience)

    def hold(self) -> None:
        """One more uses it."""
        self._holders += 1

    def let_go(self) -> None:
        """One fewer; LMDB may use its pages again behind the last one."""
        self._holders -= 1
        if self._holders == 0:
            self._reading.abort()


def _layout(head: bytes) -> tuple[int, int, int] | None:
    """Of a file, by its beginning."""
    for header_bytes, version, base in _LAYOUTS if sys.byteorder == "little" else ():
        if len(head) < header_bytes + _META_BYTES:
            continue
        found = struct.unpack_from("<II", head, header_bytes)
        (page_bytes,) = struct.unpack_from("<I", head, header_bytes + _PAGE_BYTES_AT)
        if found == (_MAGIC, version) and page_bytes in _PAGE_BYTES:
            return page_bytes, header_bytes, base
    return None


def _number(meta: bytes, place: int) -> int:
    return int(struct.unpack_from("<Q", meta, place)[0])
