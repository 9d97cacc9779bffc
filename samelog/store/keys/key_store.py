"""The index of a partition's keys on disk: from each key to the offset of the record that it counts
for (docs/keys.md has the layout).

Invariant: entries and the end that covers them are changed by one transaction, which is durable
before it counts; so up to `end` the index has every key, and nothing of what is behind.
"""

from __future__ import annotations

import errno
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, Protocol

from samelog.format.errors import CorruptLog, LogFormatError
from samelog.store.disk.disk_errors import DiskFault, NoSpace
from samelog.store.keys.key_pages import ABSENT, UNTOLD, KeyPages, KeySnapshot

if TYPE_CHECKING:
    import lmdb

    from samelog.store.disk.files import FileSystem

FOLDER = "keys"
WHOLE_KEY_BYTES = 500
"""LMDB takes keys of up to 511 bytes."""
MAP_BYTES = 1 << 28
"""Of address space, not of memory or disk: so much at first, and twice as much whenever it is full.
A process has 128 TiB, for all its indexes.
"""
SWEPT_AT_ONCE = 20_000
_NUMBER = struct.Struct(">Q")
_END, _BLOCK = b"\x02", b"\x03"

_OF_CONTENT = ("CorruptedError", "InvalidError", "PageNotFoundError", "VersionMismatchError")
"""LMDB's errors for an index that is damaged, or none: only these have it rebuilt."""

KeyEntry = tuple[bytes, int]


class LookUp(NamedTuple):
    """Whether it waits for the disk, and how many keys may be untold (KeyPages.find)."""

    waits: bool
    patience: int | None = None


GLANCE = LookUp(waits=False, patience=8)
"""Behind so many keys that are not in memory, threads look for all others, too."""


class KeysUnavailable(LogFormatError):
    """An index cannot be used now, which says nothing of what is in it."""


def stored_keys(keys: Iterable[bytes | None]) -> list[bytes | None]:
    """Keys as they are stored: a long one by its digest."""
    return [None if key is None else _stored(key) for key in keys]


def _stored(key: bytes) -> bytes:
    return b"\x00" + key if len(key) <= WHOLE_KEY_BYTES else b"\x01" + sha256(key).digest()


class KeyStore(Protocol):
    """One partition's index; keys are as `stored_keys` gives them."""

    end: int
    """Keys of all records below are here."""
    sums: dict[int, int]
    """Block -> its digest, as far as `end` reaches."""

    @property
    def count(self) -> int:
        """How many entries there are, about."""

    def find(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """The offsets of those that are known. For threads. Raises CorruptLog, DiskFault,
        KeysUnavailable.
        """

    def glance(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """What can be told of keys without waiting for a disk: their offsets, or ABSENT. Raises as
        `find`.
        """

    def advance(self, entries: Sequence[KeyEntry], end: int, sums: Mapping[int, int]) -> None:
        """Add entries, and what is true with them, durably. For threads. Raises DiskFault,
        KeysUnavailable.
        """

    def page(self, behind: bytes, most: int) -> list[KeyEntry]:
        """The next entries in the order of keys. Raises as `find`."""

    def sweep(self, behind: bytes, floor: int) -> bytes | None:
        """Remove some of the entries below an offset; the key to go on behind. For threads. Raises
        DiskFault, KeysUnavailable.
        """

    def close(self) -> None:
        """Let go of it, at latest when the threads that use it have ended."""


class LmdbKeys:
    """The real one. Implements KeyStore."""

    def __init__(self, environment: lmdb.Environment, path: str) -> None:
        self._environment = environment
        self._path = path
        self._lock, self._users, self._is_closed = threading.Condition(), 0, False
        self._grows = False
        with environment.begin() as reading:
            found = reading.get(_END)
            self.end = 0 if found is None else int(_NUMBER.unpack(found)[0])
            self.sums = dict(_blocks(reading))
        self._pages = KeyPages.open(path)
        self._snapshot = self._newest()

    @classmethod
    def open(cls, path: str) -> LmdbKeys:
        """The index in a folder that is there. Raises CorruptLog, DiskFault,
        KeysUnavailable.
        """
        import lmdb

        try:
            return cls(lmdb.open(path, map_size=MAP_BYTES, mode=0o600, max_readers=16), path)
        except (lmdb.Error, OSError, struct.error) as error:
            raise _fault(path, "open", error) from error

    @property
    def count(self) -> int:
        """How many entries there are, about."""
        return int(self._environment.stat()["entries"])

    def find(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """The offsets of those that are known."""
        with self._held() as snapshot:
            if snapshot is not None:
                return self._all_of(snapshot, sorted(keys))
        with self._reading() as reading, reading.cursor() as cursor:
            return {key: _NUMBER.unpack(value)[0] for key, value in cursor.getmulti(keys)}

    def glance(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """What can be told of keys without waiting for a disk: their offsets, or ABSENT."""
        if self._grows:
            return {}
        with self._held() as snapshot:
            found = {} if snapshot is None else self._told(snapshot, sorted(keys), GLANCE)
        return {key: offset for key, offset in found.items() if offset != UNTOLD}

    def _all_of(self, snapshot: KeySnapshot, keys: list[bytes]) -> dict[bytes, int]:
        found = self._told(snapshot, keys, LookUp(waits=False))
        left = [key for key, offset in found.items() if offset == UNTOLD]
        if left:  # the disk is reading for all of them by now
            found |= self._told(snapshot, left, LookUp(waits=True))
        return {key: offset for key, offset in found.items() if offset != ABSENT}

    def _told(self, snapshot: KeySnapshot, keys: list[bytes], how: LookUp) -> dict[bytes, int]:
        try:
            found = snapshot.find(keys, waits=how.waits, patience=how.patience)
            return dict(zip(keys, found, strict=True))
        except ValueError as error:
            raise CorruptLog(self._path, 0, str(error)) from error
        except OSError as error:
            raise _fault(self._path, "read", error) from error

    def advance(self, entries: Sequence[KeyEntry], end: int, sums: Mapping[int, int]) -> None:
        """Add entries, and what is true with them, durably."""
        ordered = [(key, _NUMBER.pack(offset)) for key, offset in sorted(entries)]
        told = [(_BLOCK + _NUMBER.pack(block), _NUMBER.pack(sums[block])) for block in sums]

        def put(writing: lmdb.Transaction[bytes]) -> None:
            with writing.cursor() as cursor:
                cursor.putmulti(ordered)
                cursor.putmulti(told)
            writing.put(_END, _NUMBER.pack(end))

        self._change(put)
        self.sums.update(sums)
        self.end = end

    def page(self, behind: bytes, most: int) -> list[KeyEntry]:
        """The next entries in the order of keys."""
        found: list[KeyEntry] = []
        with self._reading() as reading, reading.cursor() as cursor:
            if not cursor.set_range(behind + b"\x00" if behind else b"\x00"):
                return found
            for key, value in cursor:
                if key >= _END or len(found) == most:
                    break
                found.append((key, _NUMBER.unpack(value)[0]))
        return found

    def sweep(self, behind: bytes, floor: int) -> bytes | None:
        """Remove some of the entries below an offset; the key to go on behind."""
        found = self.page(behind, SWEPT_AT_ONCE)
        gone = [key for key, offset in found if offset < floor]

        def delete(writing: lmdb.Transaction[bytes]) -> None:
            for key in gone:
                writing.delete(key)

        self._change(delete)
        return found[-1][0] if len(found) == SWEPT_AT_ONCE else None

    def close(self) -> None:
        """Let go of it, at latest when the threads that use it have ended."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            if is_first and self._users == 0:
                self._end_all()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """It is closed, or its map changed, behind this only. Waits for a map that grows."""
        with self._lock:
            self._lock.wait_for(lambda: not self._grows)
            if self._is_closed:
                raise KeysUnavailable(f"{self._path} is closed")
            self._users += 1
        try:
            yield
        finally:
            self._used()

    def _used(self) -> None:
        with self._lock:
            self._users -= 1
            self._lock.notify_all()
            if self._is_closed and self._users == 0:
                self._end_all()

    def _end_all(self) -> None:
        self._put(None)
        self._environment.close()
        if self._pages is not None:
            self._pages.close()

    # --- the state that lookups read --------------------------------------------------------------

    def _newest(self) -> KeySnapshot | None:
        """The state behind a change, before the next one; None: LMDB has to be asked."""
        if self._pages is None:
            return None
        reading = self._environment.begin()
        root = self._pages.root(reading.id())
        if root is None:
            reading.abort()
            return None
        return KeySnapshot(reading, self._pages, root)

    def _put(self, snapshot: KeySnapshot | None) -> None:
        """From now on lookups read this state."""
        with self._lock:
            before, self._snapshot = self._snapshot, snapshot
            if before is not None:
                before.let_go()

    @contextmanager
    def _held(self) -> Iterator[KeySnapshot | None]:
        """The state that lookups read, which stays as it is."""
        with self._in_use():
            with self._lock:
                snapshot = self._snapshot
                if snapshot is not None:
                    snapshot.hold()
            try:
                yield snapshot
            finally:
                if snapshot is not None:
                    with self._lock:
                        snapshot.let_go()

    # --- transactions -----------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[lmdb.Transaction[bytes]]:
        """What is there now."""
        import lmdb

        try:
            with self._in_use(), self._environment.begin() as transaction:
                yield transaction
        except (lmdb.Error, struct.error) as fault:
            raise _fault(self._path, "read", fault) from fault

    def _change(self, change: Callable[[lmdb.Transaction[bytes]], None]) -> None:
        """In one transaction, which is durable behind this, unless an error is raised in it."""
        import lmdb

        while True:
            try:
                with self._in_use():
                    with self._environment.begin(write=True) as transaction:
                        change(transaction)
                    with self._lock:  # nobody puts an older one behind it
                        self._put(self._newest())
                return
            except lmdb.MapFullError:
                self._grow()
            except (lmdb.Error, OSError) as fault:
                raise _fault(self._path, "write", fault) from fault

    def _grow(self) -> None:
        """Map twice as much while new readers wait. Raises DiskFault, KeysUnavailable."""
        import lmdb

        with self._lock:
            self._grows = True
            try:
                self._lock.wait_for(lambda: self._users == 0)
                if self._is_closed:
                    raise KeysUnavailable(f"{self._path} is closed")
                self._put(None)  # no transaction may be open; the next change has a state again
                self._environment.set_mapsize(2 * self._environment.info()["map_size"])
            except lmdb.Error as fault:
                raise _fault(self._path, "map", fault) from fault
            finally:
                self._grows = False
                self._lock.notify_all()


def open_keys(fs: FileSystem, path: str) -> KeyStore:
    """Open the index in a folder on disk. Raises CorruptLog, DiskFault, KeysUnavailable."""
    fs.make_directory(path)
    return LmdbKeys.open(path)


def _blocks(reading: lmdb.Transaction[bytes]) -> Iterable[tuple[int, int]]:
    with reading.cursor() as cursor:
        if cursor.set_range(_BLOCK):
            for key, value in cursor:
                yield _NUMBER.unpack(key[1:])[0], _NUMBER.unpack(value)[0]


def _fault(path: str, operation: str, error: Exception) -> LogFormatError:
    """What LMDB says: of the disk by the number of the operating system."""
    if type(error).__name__ in _OF_CONTENT or isinstance(error, struct.error):
        return CorruptLog(path, 0, str(error))
    number = getattr(error, "errno", None) or getattr(error, "code", None)
    if "No space" in str(error) or number in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(path, operation, errno.ENOSPC)
    if isinstance(number, int) and number > 0:
        return DiskFault(path, operation, number)
    return KeysUnavailable(f"{path}: cannot {operation}: {error}")


class NoKeys:
    """The index of a partition that has nothing yet, and no folder. Implements KeyStore."""

    def __init__(self) -> None:
        self.end = 0
        self.sums: dict[int, int] = {}
        self.count = 0

    def find(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """None."""
        return {}

    def glance(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """That they are absent."""
        return dict.fromkeys(keys, ABSENT)

    def advance(self, entries: Sequence[KeyEntry], end: int, sums: Mapping[int, int]) -> None:
        """Never asked for."""

    def page(self, behind: bytes, most: int) -> list[KeyEntry]:
        """None."""
        return []

    def sweep(self, behind: bytes, floor: int) -> bytes | None:
        """Nothing."""
        return None

    def close(self) -> None:
        """Nothing."""
