"""The index on disk: what was stored is found, also by the next process; a step is whole."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import lmdb
import pytest

from samelog.format.errors import CorruptLog
from samelog.store.disk.files import OsFileSystem
from samelog.store.keys import key_store
from samelog.store.keys._key_pages import look_up
from samelog.store.keys.key_pages import ABSENT, FILE, UNTOLD, KeyPages
from samelog.store.keys.key_store import KeyStore, KeysUnavailable, LmdbKeys, open_keys, stored_keys
from tests.e2e.harness import wait_for
from tests.keys.memory import FileKeys
from tests.patience import PATIENCE_S

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


def test_readers_that_come_while_a_map_grows_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they could keep it from growing for ever. A glance waits for nothing."""
    monkeypatch.setattr(key_store, "MAP_BYTES", 1 << 16)
    store = LmdbKeys.open(str(tmp_path))
    entries = [(b"\x00%06d" % at, at) for at in range(3000)]
    grown, found = threading.Event(), threading.Event()

    def grow() -> None:
        store.advance(entries, len(entries), {})
        grown.set()

    def find() -> None:
        store.find([entries[7][0]])
        found.set()

    threads = [threading.Thread(target=grow), threading.Thread(target=find)]
    with store._in_use():
        threads[0].start()
        wait_for(lambda: store._grows, "the map grows")
        threads[1].start()
        assert store.glance([entries[7][0]]) == {}
        assert not found.wait(0.05)
        assert not grown.is_set()
    assert grown.wait(PATIENCE_S)
    assert found.wait(PATIENCE_S)
    for thread in threads:
        thread.join()
    store.close()


def test_what_cannot_be_read_is_a_typed_fault(tmp_path: Path) -> None:
    store = LmdbKeys.open(str(tmp_path))
    store.advance([(KEYS[0], 1)], 2, {})
    held = [store._environment.begin() for _ in range(15)]  # lookups have one
    assert store.find(KEYS) == {KEYS[0]: 1}
    with pytest.raises(KeysUnavailable, match="cannot read"):
        store.page(b"", 9)
    while held:
        held.pop().abort()
    with store._environment.begin(write=True) as writing:
        writing.put(KEYS[0], b"no number")
    assert store.find(KEYS) == {KEYS[0]: 1}, "what was there at the last step"
    store.advance([], 2, {})
    with pytest.raises(CorruptLog):
        store.find(KEYS)
    store.close()
    with pytest.raises(KeysUnavailable, match="closed"):
        store.find(KEYS)


# --- pages read beside LMDB -----------------------------------------------------------------------


def by_lmdb(store: LmdbKeys, keys: list[bytes]) -> dict[bytes, int]:
    """What LMDB itself finds."""
    with store._environment.begin() as reading, reading.cursor() as cursor:
        return {key: int.from_bytes(value, "big") for key, value in cursor.getmulti(keys)}


def check_all(store: LmdbKeys, keys: list[bytes]) -> None:
    found, told = by_lmdb(store, keys), store.glance(keys)
    assert store.find(keys) == found
    assert all(found.get(key, ABSENT) == offset for key, offset in told.items())


@pytest.mark.parametrize("seed", range(3))
def test_pages_say_what_lmdb_says(tmp_path: Path, seed: int) -> None:
    """While keys of all lengths come and go, so that the tree gets levels and loses some."""
    chance, store = random.Random(seed), LmdbKeys.open(str(tmp_path))
    keys = [b"\x00" + chance.randbytes(chance.choice((0, 1, 2, 16, 17, 499))) for _ in range(6000)]
    floor = 0
    for step in range(0, len(keys), 1500):
        entries = {key: step + at for at, key in enumerate(keys[step : step + 1500])}
        store.advance([*entries.items()], step + 1500, {})
        check_all(store, [*dict.fromkeys(keys), b"\x00\xff", b"\x01\xff"])
        if step % 3000:
            floor = step
            behind: bytes | None = b""
            while behind is not None:
                behind = store.sweep(behind, floor)
            check_all(store, [*dict.fromkeys(keys)])
    assert store._environment.stat()["depth"] >= 2
    store.close()


def test_lookups_read_one_state_while_the_next_ones_are_made(tmp_path: Path) -> None:
    store, keys = LmdbKeys.open(str(tmp_path)), [b"\x00%05d" % at for at in range(3000)]
    store.advance([(key, 1) for key in keys], 1, {})
    with store._held() as snapshot:
        assert snapshot is not None
        for offset in range(2, 8):
            store.advance([(key, offset) for key in keys], offset, {})
            assert set(snapshot.find(keys, waits=True)) == {1}
    assert set(store.find(keys).values()) == {7}
    store.close()


def engines() -> Iterator[int]:
    """Those that the library has: it writes files of LMDB 0.9, and newer ones of 1.0, too."""
    yield -1
    if int(version("lmdb").partition(".")[0]) >= 2:
        yield from (0, 1)


@pytest.mark.parametrize("engine", [*engines()])
def test_both_layouts_are_known(tmp_path: Path, engine: int) -> None:
    more = {} if engine < 0 else {"lib_version": engine}
    try:
        environment = cast(Any, lmdb.open)(str(tmp_path), map_size=1 << 20, **more)
    except lmdb.Error as error:
        pytest.skip(f"this library has no such engine: {error}")
    with environment.begin(write=True) as writing:
        for at in range(2000):
            writing.put(b"\x00" * (at % 3) + b"%d" % at, at.to_bytes(8, "big"))
    pages = KeyPages.open(str(tmp_path))
    assert pages is not None
    with environment.begin() as reading:
        root = pages.root(reading.id())
        assert root is not None
        assert pages.root(reading.id() + 1) is None
        keys = [b"\x00" * (at % 3) + b"%d" % at for at in range(2000)]
        assert pages.find(root, keys, waits=True) == list(range(2000))
        assert pages.find(root, [b"no", b""], waits=True) == [ABSENT, ABSENT]
    pages.close()
    environment.close()


def test_a_damaged_page_is_no_key_that_is_absent(tmp_path: Path) -> None:
    store, keys = LmdbKeys.open(str(tmp_path)), [b"\x00%05d" % at for at in range(5000)]
    store.advance([(key, 1) for key in keys], 1, {})
    (tmp_path / "copy").mkdir()
    copy = Path(shutil.copy(tmp_path / FILE, tmp_path / "copy" / FILE))
    with store._environment.begin() as reading:
        number = reading.id()
    whole, header_bytes = copy.read_bytes(), cast(Any, store)._pages._layout[1]
    for place in (0, header_bytes - 6):  # its number, its kind
        damaged = bytearray(whole)
        for page in range(2 * 4096, len(damaged), 4096):
            damaged[page + place] ^= 0xFF
        copy.write_bytes(damaged)
        pages = KeyPages.open(str(copy.parent))
        assert pages is not None
        root = pages.root(number)
        assert root is not None
        with pytest.raises(ValueError, match="page"):
            pages.find(root, keys, waits=True)
        pages.close()
    store.close()


def test_what_only_the_disk_knows_is_not_told_without_waiting() -> None:
    """A pipe cannot be read at an offset at all."""
    reader, writer = os.pipe()
    try:
        layout = 4096, 16, 0
        assert look_up(reader, 2, layout, [b"k", b"l"], False, 2) == [UNTOLD, UNTOLD]
        assert look_up(reader, 2, layout, [b"k", b"l"], False, 1) == [UNTOLD, UNTOLD]
        with pytest.raises(OSError, match="cannot be read"):
            look_up(reader, 2, layout, [b"k"], True, 1)
        with pytest.raises(ValueError, match="page"):
            look_up(reader, 1, layout, [b"k"], True, 1)
    finally:
        os.close(reader)
        os.close(writer)


def test_a_file_of_another_kind_is_left_to_lmdb(tmp_path: Path) -> None:
    for content in (b"", b"nothing like it" * 100):
        (tmp_path / FILE).write_bytes(content)
        assert KeyPages.open(str(tmp_path)) is None
    with pytest.raises(FileNotFoundError):
        KeyPages.open(str(tmp_path / "nowhere"))


def test_without_a_known_layout_lmdb_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyPages, "open", lambda path: None)
    store = LmdbKeys.open(str(tmp_path))
    store.advance([(KEYS[0], 1)], 2, {})
    assert store.glance(KEYS) == {}
    assert store.find(KEYS) == {KEYS[0]: 1}
    store.close()
