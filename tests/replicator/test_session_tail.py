"""Following the files of a run: never further than whole valid batches."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.format.errors import CorruptLog
from samelog.format.file_names import parse_names
from samelog.replicator.push import session_tail
from samelog.replicator.push.session_damage import SessionDamage
from samelog.replicator.push.session_tail import PieceCache, RunTail
from samelog.store.disk.files import NoSuchFile, OsFileSystem
from samelog.store.session.damage import Damage
from samelog.wire.push.effects import FileExtent
from tests.examples import at_most
from tests.replicator.session_files import batch


class Followed:
    """An input directory that is written by hand, and its tail."""

    def __init__(self, path: Path, *, limit_bytes: int = 1 << 20) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.pieces = PieceCache(limit_bytes)
        self.tail = RunTail(OsFileSystem(), str(path), 0, self.pieces)

    def write(self, name: str, data: bytes = b"") -> Path:
        """Append to a file."""
        file = self.path / name
        with file.open("ab") as opened:
            opened.write(data)
        return file

    def look(self) -> None:
        """List the directory."""
        names = parse_names(path.name for path in self.path.iterdir())
        self.tail.look(names or parse_names(["log.0.0"]))

    def follow(self) -> tuple[int, int]:
        """List, and advance as far as it goes."""
        self.look()
        while self.tail.advance():
            pass
        return self.tail.end


def read_all(tail: RunTail, roll: int, start: int = 0, limit: int = 1 << 20) -> bytes:
    """A file, piece by piece."""
    extent = tail.extent(roll)
    data = bytearray()
    while extent is not None and start + len(data) < extent.end:
        data += tail.read(roll, start + len(data), min(limit, extent.end - start - len(data)))
    return bytes(data)


@settings(max_examples=at_most(40))
@given(seed=st.integers(0, 1 << 32))
def test_the_end_is_where_whole_batches_end(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = random.Random(seed)
    followed = Followed(tmp_path_factory.mktemp("input"))
    whole = [batch(source.randbytes(source.randrange(900))) for _ in range(source.randrange(30))]
    data = b"".join(whole)
    boundaries = set(accumulate(map(len, whole), initial=0))
    written = 0
    while written < len(data):
        size = source.randrange(1, 2000)
        followed.write("log.0.0", data[written : written + size])
        written = min(len(data), written + size)
        roll, end = followed.follow()
        assert roll == 0
        assert end == max(boundary for boundary in boundaries if boundary <= written)
    assert followed.tail.end == (0, len(data))
    assert read_all(followed.tail, 0, limit=source.randrange(1, 4000)) == data


@pytest.mark.parametrize("marked", [True, False])
def test_files_follow_each_other(tmp_path: Path, marked: bool) -> None:
    followed = Followed(tmp_path)
    first, second = batch(b"a"), batch(b"b")
    followed.write("log.0.0", first)
    assert followed.follow() == (0, len(first))
    assert followed.tail.extent(0) == FileExtent(len(first), None)
    if marked:
        followed.write(f"log.0.0.sealed-{len(first)}")
        assert followed.follow() == (1, 0), "complete, whether the next file is there or not"
    followed.write("log.0.1", second)
    assert followed.follow() == (1, len(second))
    assert followed.tail.extent(0) == FileExtent(len(first), 1)
    assert followed.tail.normal((0, len(first))) == (1, 0)
    assert followed.tail.normal((0, 3)) == (0, 3)


def test_a_file_that_is_not_complete_is_not_left(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    followed.write("log.0.0", batch(b"a") + batch(b"torn")[:-1])
    followed.write("log.0.1", batch(b"b"))
    assert followed.follow() == (0, len(batch(b"a")))
    followed.write("log.0.0.sealed-4000")
    assert followed.follow() == (0, len(batch(b"a")))


def test_bytes_behind_the_sealed_length_do_not_count(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    followed.write("log.0.0", batch(b"a") + batch(b"b"))
    followed.write(f"log.0.0.sealed-{len(batch(b'a'))}")
    assert followed.follow() == (1, 0)
    assert read_all(followed.tail, 0) == batch(b"a")


def test_a_bad_batch_means_not_yet(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    good = batch(b"good")
    bad = bytearray(batch(b"bad"))
    bad[-1] ^= 1
    file = followed.write("log.0.0", good + bytes(bad))
    assert followed.follow() == (0, len(good))
    assert "CRC" in str(followed.tail.blocked).upper()
    file.write_bytes(good + batch(b"bad"))
    assert followed.follow() == (0, len(good) + len(bad))
    assert followed.tail.blocked is None


def test_a_run_is_held_from_its_first_file(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    followed.write("log.0.3", batch(b"a"))
    followed.look()
    assert followed.tail.first == followed.tail.end == (3, 0)
    assert followed.follow() == (3, len(batch(b"a")))
    with pytest.raises(NoSuchFile):
        followed.tail.read(2, 0, 100)
    assert followed.tail.extent(2) is None


def test_what_is_released_is_forgotten(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    followed.write("log.0.0", batch(b"a"))
    followed.write("log.0.1", batch(b"b"))
    followed.follow()
    (tmp_path / "log.0.0").unlink()
    followed.look()
    assert followed.tail.first == (1, 0)
    assert followed.tail.extent(0) is None
    assert followed.tail.rolls == [1]
    (tmp_path / "log.0.1").unlink()
    followed.look()
    assert followed.tail.end == (1, len(batch(b"b")))


def test_a_known_boundary_spares_the_scan(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    first, second = batch(b"a"), batch(b"b")
    followed.write("log.0.0", first)
    followed.write("log.0.1", second + batch(b"c"))
    followed.look()
    followed.tail.raise_to((1, len(second)))
    assert followed.tail.end == (1, len(second))
    assert followed.tail.extent(0) == FileExtent(len(first), 1)
    followed.tail.raise_to((0, 0))
    assert followed.follow() == (1, len(second + batch(b"c")))


def test_files_below_a_known_boundary_may_be_missing(tmp_path: Path) -> None:
    """A power failure undid the removal of some released files, so that one between them was
    missing, and the node's position behind all of them was never used (world 890000064 of many
    groups).
    """
    followed, last = Followed(tmp_path), batch(b"last")
    followed.write("log.0.0")
    followed.write("log.0.0.sealed-100")
    followed.write("log.0.2", last)
    followed.write(f"log.0.2.sealed-{len(last)}")
    followed.look()
    followed.tail.raise_to((2, len(last)))
    assert followed.tail.end == (3, 0)
    assert followed.tail.sealed_length(1) is None
    assert followed.tail.damage is None


def test_a_batch_is_told_by_where_it_starts(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    data = batch(b"a") + batch(b"bb")
    file = followed.write("log.0.0", data)
    start, crc = len(batch(b"a")), int.from_bytes(batch(b"bb")[17:21], "big")
    assert followed.tail.find_batch(0, start, len(data)) == (len(data), crc)
    assert followed.tail.find_batch(0, start - 1, len(data)) is None
    assert followed.tail.find_batch(0, len(data), len(data) + 80) is None
    assert followed.tail.find_batch(4, 0, 10) is None
    file.write_bytes(data[:-1] + b"?")
    assert followed.tail.find_batch(0, start, len(data)) is None


def test_a_batch_that_rots_behind_the_scan_is_found_when_it_is_compared(tmp_path: Path) -> None:
    """A node that has it waited for ever for what follows, if the connection broke."""
    followed = Followed(tmp_path)
    first, second = batch(b"a"), batch(b"b")
    file = followed.write("log.0.0", first + second)
    assert followed.follow() == (0, len(first + second))
    file.write_bytes(first[:-1] + b"?" + second)
    assert followed.tail.find_batch(0, 0, len(first)) is None
    assert followed.tail.damage is not None
    assert followed.tail.part_end == (0, 0)
    assert followed.tail.damage.stop == (0, len(first))


def test_a_part_that_was_closed_at_the_end_of_a_file_was_closed_before_the_missing_one(
    tmp_path: Path,
) -> None:
    """The next part began with the missing file, and was never shipped."""
    followed = Followed(tmp_path)
    data = batch(b"a")
    followed.write("log.0.0", data)
    followed.write(f"log.0.0.sealed-{len(data)}", b"")
    followed.write("log.0.2", data)
    followed.look()
    while followed.tail.advance():
        pass
    assert followed.tail.damage == Damage((1, 0), (2, 0), "the file is missing")
    assert SessionDamage.behind(followed.tail, (0, len(data))) == (2, 0)
    assert SessionDamage.behind(followed.tail, (0, 0)) == (0, 0)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_the_end_is_found_despite_a_missing_middle_file(tmp_path: Path, is_sealed: bool) -> None:
    followed = Followed(tmp_path)
    data = batch(b"a")
    for roll in (0, 2, 3):
        followed.write(f"log.0.{roll}", data)
    if is_sealed:
        followed.write(f"log.0.1.sealed-{len(data)}")
    followed.look()
    assert followed.tail.reaches_beyond((2, 0))
    followed.tail.advance_to_end()
    assert followed.tail.end == (3, len(data))
    missing = len(data) if is_sealed else 0
    sizes = [len(data), missing, len(data), len(data)]
    assert followed.tail.all_lengths() == list(enumerate(sizes))
    again = RunTail(OsFileSystem(), str(tmp_path), 0, followed.pieces)
    again.look(parse_names(path.name for path in tmp_path.iterdir()))
    while again.advance():
        pass
    assert again.damage == Damage((1, 0), (2, 0), "the file is missing")


def test_files_that_are_missing_before_damage_end_the_part_first(tmp_path: Path) -> None:
    """The damage behind kept the missing files from being noticed."""
    followed = Followed(tmp_path)
    data = batch(b"a")
    followed.write("log.0.1", data[:-1] + b"?" + data)
    followed.look()
    followed.tail.advance_to_end()
    assert followed.tail.damage is not None
    assert followed.tail.part_end == (1, 0)
    followed.tail.lose_start()
    assert followed.tail.part_end == (0, 0)


def test_rotten_bytes_are_never_read_out(tmp_path: Path) -> None:
    followed = Followed(tmp_path, limit_bytes=0)  # nothing is kept
    data = batch(b"a") + batch(b"b")
    file = followed.write("log.0.0", data)
    assert followed.follow() == (0, len(data))
    file.write_bytes(data[:-1] + b"?")
    assert followed.tail.read(0, 0, len(data)) == batch(b"a")
    with pytest.raises(CorruptLog):
        followed.tail.read(0, len(batch(b"a")), 100)


def test_a_batch_longer_than_a_piece_is_taken_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_tail, "PIECE_BYTES", 100)
    followed = Followed(tmp_path)
    data = batch(b"x" * 5000) + batch(b"y") + batch(b"z" * 300)
    followed.write("log.0.0", data)
    assert followed.follow() == (0, len(data))
    assert read_all(followed.tail, 0, limit=100) == data


def test_kept_pieces_are_bounded_and_shared() -> None:
    pieces = PieceCache(100)
    for byte in range(0, 400, 40):
        pieces.put((1, 0, byte), memoryview(bytes(40)))
    assert pieces.get((1, 0, 320), 40) is not None
    assert pieces.get((1, 0, 360), 40) is not None
    assert pieces.get((1, 0, 280), 40) is None
    assert pieces.get((1, 0, 360), 39) is None, "longer than wanted"
    pieces.put((1, 0, 360), memoryview(bytes(60)))
    assert pieces.get((1, 0, 320), 40) is not None
    pieces.put((1, 0, 400), memoryview(bytes(500)))
    assert pieces.get((1, 0, 400), 500) is None


def test_pieces_of_a_run_are_given_to_that_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail may be in the place in memory of one that is gone."""
    monkeypatch.setattr(session_tail, "id", lambda _: 7, raising=False)
    old, new = batch(b"old" * 9), batch(b"new" * 9)
    followed = Followed(tmp_path)
    followed.write("log.0.0", new + old)
    followed.write("log.1.0", new + new)
    followed.follow()
    assert read_all(followed.tail, 0, limit=len(old)) == new + old
    followed.tail.close()
    later = RunTail(OsFileSystem(), str(tmp_path), 1, followed.pieces)
    later.look(parse_names(path.name for path in tmp_path.iterdir()))
    while later.advance():
        pass
    assert read_all(later, 0, limit=len(old)) == new + new


def test_listeners_hear_of_news_only_while_they_listen(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    heard: list[tuple[int, int]] = []

    def listener() -> None:
        heard.append(followed.tail.end)

    followed.write("log.0.0", batch(b"a"))
    followed.tail.add_listener(listener)
    followed.follow()
    assert heard == [(0, len(batch(b"a")))]
    followed.tail.notice()
    followed.tail.remove_listener(listener)
    followed.tail.notice()
    assert len(heard) == 2
    followed.tail.close()
