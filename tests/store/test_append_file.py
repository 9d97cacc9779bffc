"""A growing file: what counts as written, and what is reserved ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.store.disk.append_file import FIRST_STEP_BYTES, LAST_STEP_BYTES, AppendFile
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import File
from tests.store.storage import FS
from tests.store.test_files import file_size_limit


@pytest.fixture
def file(tmp_path: Path) -> File:
    """A new file."""
    return FS.open(tmp_path / "f", create=True)


def _blocks(file: File) -> int:
    return Path(file.path).stat().st_blocks * 512


def test_appends_go_to_the_end(file: File) -> None:
    growing = AppendFile(file, 0)
    assert [growing.append(data) for data in (b"abc", bytearray(b"de"), memoryview(b"f"))] == [
        0,
        3,
        5,
    ]
    assert growing.size == file.size() == 6
    assert file.pread(10, 0) == b"abcdef"


@pytest.fixture
def reserved(file: File, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What is reserved of files from now on: where it begins and ends. Nothing is written."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(
        type(file), "preallocate", lambda _, start, size: asked.append((start, start + size))
    )
    monkeypatch.setattr(type(file), "pwrite", lambda *_: None)
    return asked


def test_blocks_are_reserved_in_doubling_steps(file: File, reserved: list[tuple[int, int]]) -> None:
    growing = AppendFile(file, 0)
    while growing.size < 4 * LAST_STEP_BYTES:
        growing.append(bytes(4000))
    assert [start for start, _ in reserved] == [0, *(stop for _, stop in reserved)][:-1]
    stops = [stop for _, stop in reserved]
    doubling = [FIRST_STEP_BYTES << n for n in range(15)]
    assert stops == [*doubling, *range(2 * LAST_STEP_BYTES, stops[-1] + 1, LAST_STEP_BYTES)]


def test_large_appends_are_not_reserved_for_one_by_one(
    file: File, reserved: list[tuple[int, int]]
) -> None:
    growing = AppendFile(file, 0)
    for _ in range(64):
        growing.append(bytes(1 << 20))
    assert [stop >> 20 for _, stop in reserved] == [1, 2, 4, 8, 16, 32, 64]


def test_a_small_log_takes_a_block(file: File) -> None:
    growing = AppendFile(file, 0)
    for _ in range(10):
        growing.append(b"a" * 300)
    assert _blocks(file) == FIRST_STEP_BYTES


def test_sealing_gives_back_what_was_reserved(file: File) -> None:
    growing = AppendFile(file, 0)
    for _ in range(20):
        growing.append(bytes(1_000))
    assert _blocks(file) == 32 << 10
    growing.seal()
    assert _blocks(file) == 20 << 10
    assert file.size() == 20_000


def test_a_failed_append_does_not_count(file: File) -> None:
    growing = AppendFile(file, 0)
    growing.append(b"a" * 1000)
    with file_size_limit(4096), pytest.raises(NoSpace):
        growing.append(b"b" * 8000)
    assert growing.size == 1000
    assert file.size() == 4096  # a part was written
    growing.append(b"c" * 10)
    growing.seal()
    assert file.pread(5000, 0) == b"a" * 1000 + b"c" * 10


def test_a_hole_can_be_left(file: File) -> None:
    growing = AppendFile(file, 0)
    growing.start_at(100)
    assert growing.append(b"x") == 100
    assert file.pread(200, 0) == bytes(100) + b"x"
    with pytest.raises(ValueError, match="before the end"):
        growing.start_at(50)


def test_cutting_goes_on_from_there(file: File) -> None:
    growing = AppendFile(file, 0)
    growing.append(b"abcdef")
    growing.cut(2)
    assert growing.append(b"z") == 2
    assert file.pread(10, 0) == b"abz"
