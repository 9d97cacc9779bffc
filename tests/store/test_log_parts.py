"""The small parts of the log directories: watching, walking, marks, and few open files."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.format.marks import InputMarks, MergedMarks, RunMark, decode_marks, encode_marks
from samelog.store.disk import batch_walk
from samelog.store.disk.batch_walk import valid_extent
from samelog.store.disk.directories import GRAIN_S, DirectoryWatch
from samelog.store.disk.dirty_files import read_marks
from samelog.store.disk.file_cache import READ_FILES, FileCache
from samelog.store.disk.files import DiskFault, OsFileSystem, StrPath
from tests.format.oracle import crc32c
from tests.store.storage import FS, batch


class CoarseFileSystem(OsFileSystem):
    """A file system whose clock is set by hand."""

    modified = 1

    def modified_ns(self, path: StrPath) -> int:
        """The same for every path."""
        return self.modified


def test_a_directory_is_listed_until_its_time_is_old_enough(tmp_path: Path) -> None:
    fs, time = CoarseFileSystem(), [10.0]
    watch = DirectoryWatch(fs, str(tmp_path), now=lambda: time[0])
    assert watch.needs_listing()
    assert watch.needs_listing()  # a name may have come since, within the same tick
    time[0] += 2 * GRAIN_S
    assert watch.needs_listing()  # the last time: now the tick is over
    assert not watch.needs_listing()
    fs.modified = 2
    assert watch.needs_listing()
    time[0] += GRAIN_S / 2
    assert watch.needs_listing()
    time[0] += 2 * GRAIN_S
    assert watch.needs_listing()
    assert not watch.needs_listing()


def test_few_files_stay_open_for_reading_and_all_that_are_held(tmp_path: Path) -> None:
    cache = FileCache(FS)
    for number in range(2 * READ_FILES):
        (tmp_path / str(number)).write_bytes(b"x")
    held = FS.open(tmp_path / "0", writable=True)
    cache.hold(0, held)
    files = [
        cache.find(number) or cache.open(number, str(tmp_path / str(number)))
        for number in range(2 * READ_FILES)
    ]
    assert files[0] is held is cache.held(0)
    closed = []
    for number, file in enumerate(files):
        try:
            file.size()
        except DiskFault:
            closed.append(number)
    assert closed == list(range(1, READ_FILES))
    cache.release(0)
    assert cache.held(0) is None
    assert cache.find(0) is held
    cache.drop(0)
    cache.close()
    for file in files:
        with pytest.raises(DiskFault, match="closed"):
            file.size()


def test_marks_are_a_line_of_json_and_its_checksum(tmp_path: Path) -> None:
    marks = InputMarks(runs=[RunMark(3, 1, 20, 10)])
    data = encode_marks(marks)
    line = b'{"format_version":1,"runs":[[3,1,20,10]]}'
    assert data == line + b"\n%08x\n" % crc32c(line)
    assert decode_marks(data, InputMarks) == marks
    for at in range(len(data)):
        spoilt = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        assert decode_marks(spoilt, InputMarks) is None
        assert decode_marks(data[:at], InputMarks) is None
    assert decode_marks(data, MergedMarks) is None
    newer = line.replace(b'version":1', b'version":2')
    assert decode_marks(newer + b"\n%08x\n" % crc32c(newer), InputMarks) is None
    assert read_marks(FS, str(tmp_path), InputMarks) is None
    (tmp_path / "marks").symlink_to("/dev/zero")
    assert read_marks(FS, str(tmp_path), InputMarks) is None


def test_a_walk_ends_at_the_first_batch_that_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_walk, "HELD_BATCH_BYTES", 4096)
    good = [batch(seed, size=seed * 40) for seed in range(20)]
    data = b"".join(good)
    huge = batch(1, size=5000)
    for tail, reason in (
        (b"", None),
        (good[3][:-1], "the last batch is cut"),
        (b"\0" * 70, "too small"),
        (huge, "longer than allowed"),
    ):
        (tmp_path / "f").write_bytes(data + tail)
        file = FS.open(tmp_path / "f")
        for piece_bytes in (100, 1000, 1 << 20):
            walk = batch_walk.BatchWalk(file, len(good[0]), file.size(), chunk_bytes=piece_bytes)
            pieces = [piece.data[: piece.size] for piece in walk]
            assert b"".join(pieces) == b"".join(good[1:])
            assert walk.end == len(data)
            assert (reason or "") in (walk.reason or "")
            assert (reason is None) == (walk.reason is None)
        found = valid_extent(file, 0, file.size())
        assert (found.end, found.last_start) == (len(data), len(data) - len(good[-1]))
        assert valid_extent(file, 0, 0).last_start == -1
        file.close()
