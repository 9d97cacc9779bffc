"""Compaction of a merged log's files: what stays, that it is the same everywhere, and crashes."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.archiver.compaction_plan import SEGMENTS_MOST
from samelog.format import _kernels as kernels
from samelog.format.batch import Bytes, read_header
from samelog.format.compression import Codec
from samelog.format.directory_files import CompactedFile
from samelog.format.errors import CorruptLog, LogFormatError
from samelog.format.file_names import LOG, segment_name
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import OsFileSystem, StrPath
from samelog.store.merged.check import check_all, find_copies
from samelog.store.merged.generations import read_compacted
from samelog.store.merged.log import MergedLog
from tests.e2e.harness import wait_for
from tests.store.compacting import KeyedLog, Order, random_log, read_all, rewrite
from tests.store.storage import TOPIC_ID, open_merged, sync_merged


@settings(deadline=None)
@given(st.integers(0, 1 << 32), st.integers(0, 60))
def test_the_newest_of_each_key_stays(seed: int, tombstones_below: int) -> None:
    """And what is behind, and all offsets, in any number of turns."""
    with TemporaryDirectory() as folder:
        keyed = random_log(Path(folder) / "log", seed)
        log = keyed.log
        stop, end, checksum = log.end()[0], log.next_offset, log.checksum
        order = Order(tombstones_below=min(tombstones_below, stop))
        log.swap(rewrite(log, stop, order))
        assert read_all(log) == keyed.expected(stop, order.tombstones_below)
        assert (log.next_offset, log.checksum) == (end, checksum)
        log.close()
        opened = open_merged(Path(folder) / "log")
        assert not opened.damaged
        assert read_all(opened) == keyed.expected(stop, order.tombstones_below)
        assert opened.checksum == checksum
        opened.close()


@pytest.mark.parametrize("memory_bytes", [0, 4096, 1 << 20])
def test_memory_does_not_change_the_result(tmp_path: Path, memory_bytes: int) -> None:
    keyed = random_log(tmp_path / "log", 7, segments=6, keys=1000)
    for _ in range(300):
        keyed.append([(b"many %d" % len(keyed.records), b"value")])
    keyed.log.roll()
    written = rewrite(keyed.log, keyed.log.end()[0], memory_bytes=memory_bytes)
    assert written == rewrite(keyed.log, keyed.log.end()[0], memory_bytes=1 << 16)
    keyed.log.close()


def test_every_offset_is_found(tmp_path: Path) -> None:
    """Those of which nothing stayed, too: in the empty batch that stands for them."""
    keyed = random_log(tmp_path / "log", 3)
    log = keyed.log
    log.swap(rewrite(log, log.end()[0]))
    for offset in range(log.next_offset):
        base, byte = log.locate(offset)
        header = read_header(log.read(base, byte, 1))
        assert header.base_offset <= offset < header.next_offset
    log.close()


def test_small_leftovers_become_one_segment(tmp_path: Path) -> None:
    keyed = random_log(tmp_path / "log", 5, segments=9)
    log = keyed.log
    stop = log.end()[0]
    log.swap(rewrite(log, stop))
    assert [each.base_offset for each in log.segments()] == [0, stop]
    assert log.number_of(0) == 1
    log.close()


def test_compacting_again(tmp_path: Path) -> None:
    """What was compacted is compacted with what came since."""
    keyed = random_log(tmp_path / "log", 11)
    log = keyed.log
    for number in range(1, 5):
        log.swap(rewrite(log, log.end()[0], Order(number)))
        stop = log.end()[0]
        assert read_all(log) == keyed.expected(stop)
        keyed.append([(b"key %d" % number, b"again")])
        log.roll()
    sync_merged(log)
    log.close()
    opened = open_merged(tmp_path / "log")
    assert not opened.damaged
    assert opened.generations.number == 4
    opened.close()


def test_what_was_aborted_never_wins(tmp_path: Path) -> None:
    """Its marker may be in a segment that grows."""
    keyed = KeyedLog(open_merged(tmp_path / "log"))
    keyed.append([(b"a", b"1"), (b"b", b"1")])
    keyed.transact([(b"a", b"2")], is_commit=False)
    keyed.log.roll()
    keyed.log.swap(rewrite(keyed.log, keyed.log.next_offset))
    assert read_all(keyed.log) == [(0, b"a", b"1"), (1, b"b", b"1")]
    keyed.log.close()


def test_markers_stay_as_long_as_their_records(tmp_path: Path) -> None:
    keyed = KeyedLog(open_merged(tmp_path / "log"))
    keyed.transact([(b"a", b"1")], is_commit=True)
    keyed.transact([(b"b", b"1")], is_commit=True)
    keyed.append([(b"b", b"2")])
    keyed.log.roll()
    keyed.log.swap(rewrite(keyed.log, keyed.log.next_offset, Order(tombstones_below=5)))
    data = keyed.log.read(0, 0, 1 << 20)
    control = [head for head in kernels.batch_headers(data, 0, len(data)) if head[3] & 0x20]
    assert [head[6] for head in control] == [1]
    assert keyed.log.last_stable_offset == keyed.log.next_offset
    keyed.log.close()


class CrashingFiles(OsFileSystem):
    """Ends the process at the n-th change of names."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise DiskFault("a name", "rename", 5)

    def rename(self, source: StrPath, target: StrPath) -> None:
        self._count()
        super().rename(source, target)

    def write_atomically(self, path: StrPath, data: Bytes, *, durable: bool = True) -> None:
        self._count()
        super().write_atomically(path, data, durable=durable)


def _open(fs: OsFileSystem, path: Path) -> MergedLog:
    return MergedLog.open(fs, path, topic="flights", topic_id=TOPIC_ID, partition=0)


@pytest.mark.parametrize("step", range(40))
def test_a_crash_leaves_old_or_new(tmp_path: Path, step: int) -> None:
    """And a second one while the log is opened, too."""
    keyed = random_log(tmp_path / "log", 21)
    stop, checksum = keyed.log.end()[0], keyed.log.checksum
    written = rewrite(keyed.log, stop)
    keyed.log.close()
    aside = tmp_path / "aside"
    shutil.copytree(tmp_path / "log" / "compacting.1", aside)
    log = _open(OsFileSystem(), tmp_path / "log")
    shutil.copytree(aside, tmp_path / "log" / "compacting.1")
    log._fs = log.generations._fs = CrashingFiles(step)
    crashed = False
    try:
        log.swap(written)
    except DiskFault:
        crashed = True
    log.close()
    for second in (0, 1, 2, 4, 7, 11):
        copy = tmp_path / f"log{second}"
        shutil.copytree(tmp_path / "log", copy)
        with suppress(DiskFault):
            _open(CrashingFiles(second), copy).close()
        opened = open_merged(copy)
        assert not opened.damaged
        assert opened.checksum == checksum
        is_new = opened.generations.number == 1
        assert is_new or crashed
        assert read_all(opened) == (keyed.expected(stop) if is_new else keyed.records)
        assert not list(copy.glob("compacting.*"))
        opened.close()


def test_what_a_fetch_left_is_not_taken(tmp_path: Path) -> None:
    """A folder has the number of a compaction that was swapped in, when some of it comes again."""
    keyed = random_log(tmp_path / "log", 33)
    log, stop = keyed.log, keyed.log.end()[0]
    log.swap(rewrite(log, stop))
    folder = Path(log.generations.make_folder(1))
    (folder / segment_name(0, LOG)).write_bytes(b"the first bytes")
    log.close()
    opened = open_merged(tmp_path / "log")
    assert not opened.damaged
    assert read_all(opened) == keyed.expected(stop)
    assert not folder.exists()
    opened.close()


@pytest.mark.parametrize("place", [7, 15])
def test_damage_that_no_crc_covers_makes_nothing_go(tmp_path: Path, place: int) -> None:
    """An offset or a leader epoch of a batch."""
    keyed = random_log(tmp_path / "log", 21)
    file = tmp_path / "log" / segment_name(0, LOG)
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    with pytest.raises(LogFormatError):
        rewrite(keyed.log, keyed.log.end()[0])
    keyed.log.close()


def test_a_reader_follows_a_copy_that_begins_a_segment_anew(tmp_path: Path) -> None:
    """What comes then is not what was there, and may be longer before it looks again."""
    keyed = KeyedLog(open_merged(tmp_path / "log"))
    keyed.append([(b"a", b"1"), (b"b", b"1")])
    reader = open_merged(tmp_path / "log", read_only=True)
    assert read_all(reader) == keyed.records
    keyed.log.cut_back(0)
    keyed.records.clear()
    for number in range(5):
        keyed.append([(b"key %d" % number, b"a longer value than there was")])
    wait_for(lambda: reader.refresh() or reader.next_offset == 5, "it has followed")
    assert read_all(reader) == keyed.records
    reader.close()
    keyed.log.close()


class Dying(OsFileSystem):
    """Ends the process at the n-th change of what is there."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise DiskFault("a file", "unlink", 5)

    def unlink(self, path: StrPath, *, within: tuple[int, int] | None = None) -> None:
        self._count()
        super().unlink(path, within=within)

    def write_atomically(self, path: StrPath, data: Bytes, *, durable: bool = True) -> None:
        self._count()
        super().write_atomically(path, data, durable=durable)


@pytest.mark.parametrize("step", range(7))
def test_what_is_cut_is_never_taken_for_bytes_as_merged(tmp_path: Path, step: int) -> None:
    """Its running checksum would be wrong: a crash while it is cut leaves what it was."""
    keyed = random_log(tmp_path / "log", 33)
    [segment] = rewrite(keyed.log, keyed.log.end()[0])
    keyed.log.swap([segment])
    copy = open_merged(tmp_path / "copy")
    copy.begin_copy(segment)
    copy.append_copy(0, 0, keyed.log.read(0, 0, 1 << 30))
    keyed.log.close()
    sync_merged(copy)
    copy.save_marks()
    dying = Dying(step)
    copy._fs = copy.generations._fs = copy._dirty._fs = copy._segment_files._fs = dying
    with suppress(DiskFault):
        copy.cut_back(0)
    assert (dying.left < 0) is (step < 5)
    copy.close()
    opened = open_merged(tmp_path / "copy")
    assert opened.next_offset == 0 or opened.number_of(0) == 1
    opened.close()


def test_copies_of_different_generations_are_not_compared(tmp_path: Path) -> None:
    """Until both are compacted; and damage is found in each."""
    keyed = random_log(tmp_path / "log", 33)
    sync_merged(keyed.log)
    shutil.copytree(tmp_path / "log", tmp_path / "other" / "log")
    keyed.log.swap(rewrite(keyed.log, keyed.log.end()[0]))
    keyed.log.close()
    copies = find_copies([str(tmp_path / "log"), str(tmp_path / "other")])
    assert check_all(copies, lambda amount: None) == []
    assert len({copy.checksum for copy in copies}) == 1
    file = tmp_path / "log" / segment_name(0, LOG)
    data = bytearray(file.read_bytes())
    data[15] ^= 1
    file.write_bytes(data)
    copies = find_copies([str(tmp_path / "log")])
    assert "not the one that was compacted" in str(check_all(copies, lambda amount: None))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_what_was_compressed_stays_so(tmp_path: Path, codec: Codec) -> None:
    """Though each batch loses a record."""
    keyed = KeyedLog(open_merged(tmp_path / "log"))
    for number in range(8):
        own = [(b"%d-%d" % (number, each), b"{json: value, " * 100) for each in range(20)]
        keyed.append([*own, (b"same", b"1")], codec=codec)
    keyed.log.roll()
    sync_merged(keyed.log)
    stop, before = keyed.log.next_offset, keyed.log.segments()[0].size
    keyed.log.swap(rewrite(keyed.log, stop))
    assert keyed.log.segments()[0].size < 1.1 * before
    assert read_all(keyed.log) == keyed.expected(stop)
    keyed.log.close()


def test_what_takes_the_place_of_damage_stays(tmp_path: Path) -> None:
    """The file says no more that it was compacted, once that is not there."""
    keyed = random_log(tmp_path / "log", 33)
    keyed.log.swap(rewrite(keyed.log, keyed.log.end()[0]))
    keyed.log.close()
    file = tmp_path / "log" / segment_name(0, LOG)
    file.write_bytes(file.read_bytes()[:-10])
    again = KeyedLog(open_merged(tmp_path / "log"))
    assert again.log.damaged
    assert again.log.generations.segments == []
    for number in range(9):
        if number == 4:
            again.log.roll()
        again.append([(b"key %d" % number, b"value")])
    again.log.roll()
    sync_merged(again.log)
    again.log.save_marks()
    again.log.close()
    opened = open_merged(tmp_path / "log")
    assert not opened.damaged
    assert read_all(opened) == again.records
    opened.close()


def test_a_log_may_have_many_compacted_segments(tmp_path: Path) -> None:
    """As many as an order may make, and more; what could not be read is not written."""
    keyed = random_log(tmp_path / "log", 33)
    [segment] = rewrite(keyed.log, keyed.log.end()[0])
    generations = keyed.log.generations
    many = CompactedFile(number=1, segments=[segment] * 2 * SEGMENTS_MOST)
    generations._write(many)
    assert read_compacted(OsFileSystem(), keyed.log.path) == many
    with pytest.raises(CorruptLog, match="would be longer"):
        generations._write(CompactedFile(number=1, segments=[segment] * 100_000))
    assert read_compacted(OsFileSystem(), keyed.log.path) == many
    assert generations.segments == many.segments
    generations.complete(int(Path(generations.make_folder(2)).suffix[1:]), many.segments)
    generations._read_written()
    assert generations.written == {2: many.segments}
    keyed.log.close()


def test_what_was_written_is_found_again(tmp_path: Path) -> None:
    """Until nobody needs it; and what was not all written is not."""
    keyed = random_log(tmp_path / "log", 33)
    written = rewrite(keyed.log, keyed.log.end()[0], Order(7))
    keyed.log.generations.complete(7, written)
    keyed.log.generations.make_folder(8)
    keyed.log.close()
    opened = open_merged(tmp_path / "log")
    assert opened.generations.written == {7: written}
    assert [each.name for each in (tmp_path / "log").glob("compacting.*")] == ["compacting.7"]
    opened.swap(written)
    opened.generations.clear_folders()
    assert opened.generations.written == {}
    opened.close()
    opened = open_merged(tmp_path / "log")
    assert read_all(opened) == keyed.expected(opened.end()[0])
    opened.close()
