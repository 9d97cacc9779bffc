"""The index on disk: what was stored is found, also by the next process; a step is whole."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from samelog.format.errors import CorruptLog
from samelog.store.disk.files import OsFileSystem
from samelog.store.keys import key_store
from samelog.store.keys.key_store import KeyStore, KeysUnavailable, LmdbKeys, open_keys, stored_keys
from tests.keys.memory import FileKeys

LONG = b"k" * 600
KEYS = [key for key in stored_keys([b"a", b"", LONG, b"\xff" * 500]) if key is not None]


@pytest.fixture(params=["lmdb", "file"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> KeyStore:
    path, fs = str(tmp_path / "keys"), OsFileSystem()
    return open_keys(fs, path) if request.param == "lmdb" else FileKeys(fs, path)


def again(store: KeyStore, path: Path) -> KeyStore:
    store.close()
    fs, where = OsFileSystem(), str(path / "keys")
    return open_keys(fs, where) if isinstance(store, LmdbKeys) else FileKeys(fs, where)


def test_keys_are_found_after_a_restart(opened: KeyStore, tmp_path: Path) -> None:
    assert (opened.end, opened.sums, opened.find(KEYS)) == (0, {}, {})
    opened.advance([(key, at) for at, key in enumerate(KEYS)], 9, {0: (1 << 64) - 1, 7: 3})
    opened.advance([(KEYS[1], 12)], 13, {7: 4})
    for _ in range(2):
        found = opened.find([*KEYS, b"\x00other"])
        assert found == {KEYS[0]: 0, KEYS[1]: 12, KEYS[2]: 2, KEYS[3]: 3}
        assert (opened.end, opened.sums) == (13, {0: (1 << 64) - 1, 7: 4})
        opened = again(opened, tmp_path)


def test_pages_have_all_entries_in_the_order_of_keys(opened: KeyStore) -> None:
    opened.advance([(key, at) for at, key in enumerate(KEYS)], 4, {0: 5})
    found, behind = [], b""
    while page := opened.page(behind, 2):
        found += page
        behind = page[-1][0]
    assert found == sorted((key, at) for at, key in enumerate(KEYS))


def test_what_counts_no_more_is_swept_away(
    opened: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_store, "SWEPT_AT_ONCE", 3)
    keys = stored_keys(b"%03d" % at for at in range(50))
    opened.advance([(key, at) for at, key in enumerate(keys) if key is not None], 50, {})
    behind: bytes | None = b""
    while behind is not None:
        behind = opened.sweep(behind, 40)
    assert [offset for _, offset in opened.page(b"", 100)] == list(range(40, 50))
    assert opened.end == 50


def test_long_keys_are_known_by_their_digest() -> None:
    short, long, none = stored_keys([b"a", LONG, None])
    assert (short, none) == (b"\x00a", None)
    assert long is not None
    assert (len(long), long[:1]) == (33, b"\x01")


def test_a_step_that_fails_changes_nothing(tmp_path: Path) -> None:
    store = open_keys(OsFileSystem(), str(tmp_path / "keys"))
    store.advance([(KEYS[0], 1)], 5, {0: 1})
    with pytest.raises(Exception):  # noqa: B017, PT011 - the library's own, of what is no number
        store.advance([(KEYS[1], 2)], -1, {0: 2})
    assert (store.end, store.find(KEYS)) == (5, {KEYS[0]: 1})
    store = again(store, tmp_path)
    assert (store.end, store.find(KEYS), store.sums) == (5, {KEYS[0]: 1}, {0: 1})


def test_a_full_map_grows_while_others_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_store, "MAP_BYTES", 1 << 16)
    store, wrong = LmdbKeys.open(str(tmp_path)), list[int]()
    keys = [b"\x00%06d" % at for at in range(20_000)]
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            found = store.find(keys[:100])
            wrong.extend(at for at in found.values() if not 0 <= at < 100)

    reader = threading.Thread(target=read)
    reader.start()
    for at in range(0, len(keys), 1000):
        store.advance([(keys[n], n) for n in range(at, at + 1000)], at + 1000, {})
    is_over.set()
    reader.join()
    assert not wrong
    assert (tmp_path / "data.mdb").stat().st_size > 1 << 19
    assert store.find(keys) == {key: at for at, key in enumerate(keys)}
    store.close()
    store = LmdbKeys.open(str(tmp_path))  # more than is mapped at first
    assert (store.end, store.find(keys[-1:])) == (len(keys), {keys[-1]: len(keys) - 1})
    store.close()


def test_what_cannot_be_read_is_a_typed_fault(tmp_path: Path) -> None:
    store = LmdbKeys.open(str(tmp_path))
    store.advance([(KEYS[0], 1)], 2, {})
    held = [store._environment.begin() for _ in range(16)]
    with pytest.raises(KeysUnavailable, match="cannot read"):
        store.find(KEYS)
    with pytest.raises(KeysUnavailable, match="cannot read"):
        store.page(b"", 9)
    while held:
        held.pop().abort()
    assert store.find(KEYS) == {KEYS[0]: 1}
    with store._environment.begin(write=True) as writing:
        writing.put(KEYS[0], b"no number")
    with pytest.raises(CorruptLog):
        store.find(KEYS)
    store.close()
    with pytest.raises(KeysUnavailable, match="closed"):
        store.find(KEYS)
