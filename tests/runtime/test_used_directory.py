"""A directory that goes away, comes back, fills up: what is said of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from samelog.runtime import used_directory
from samelog.runtime.used_directory import (
    LEAST_FREE_BYTES,
    DirectoryUnusable,
    Trouble,
    UsedDirectory,
)
from samelog.store.disk.files import OsFileSystem, StrPath


class Disk(OsFileSystem):
    """One with so much room."""

    def __init__(self) -> None:
        super().__init__()
        self.free = 1 << 30

    def free_bytes(self, path: StrPath) -> int:
        """Made up."""
        return self.free


def used(path: Path, is_the_same: Callable[[], bool] = lambda: False) -> UsedDirectory:
    return UsedDirectory(Disk(), str(path), is_the_same)


def test_it_is_made(tmp_path: Path) -> None:
    directory = used(tmp_path / "a" / "b")
    assert (directory.trouble, directory.fault, directory.check()) == (None, "", False)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_what_cannot_be_used_from_the_start_is_told_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for path, said in (("file", "File exists"), ("file/below", "Not a directory")):
        with pytest.raises(DirectoryUnusable, match=rf"{path} cannot be made: {said} \(give one"):
            used(tmp_path / path)
    monkeypatch.setattr(used_directory, "write_error", lambda _: errno.EROFS)
    with pytest.raises(DirectoryUnusable, match="cannot be written: Read-only file system"):
        used(tmp_path / "mine")


def test_one_that_goes_away_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, aside = tmp_path / "d", tmp_path / "aside"
    directory = used(path)
    path.rename(aside)
    assert (directory.check(), directory.check()) == (True, False)
    assert (directory.trouble, directory.is_there) == (Trouble.GONE, False)
    path.mkdir()
    assert directory.check()
    assert (directory.trouble, directory.is_there) == (Trouble.REPLACED, False)
    assert "mount it again" in directory.fault
    path.rmdir()
    aside.rename(path)
    assert directory.check()
    assert (directory.fault, directory.is_there) == ("", True)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR", "WARNING"]


def test_another_one_with_the_same_in_it_counts_as_the_same(tmp_path: Path) -> None:
    path = tmp_path / "d"
    directory = used(path, (path / "mine").exists)
    path.rename(tmp_path / "old")
    path.mkdir()
    assert directory.check()
    assert directory.trouble is Trouble.REPLACED
    (path / "mine").touch()
    assert directory.check()
    (path / "mine").unlink()
    assert not directory.check(), "once it is the same, it stays so"
    assert directory.trouble is None


def test_a_file_in_its_place_and_one_that_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d"
    directory = used(path)
    with monkeypatch.context() as patched:
        patched.setattr(used_directory, "write_error", lambda _: errno.EACCES)
        assert directory.check()
        assert (directory.trouble, directory.is_there) == (Trouble.UNWRITABLE, True)
    path.rmdir()
    path.touch()
    assert directory.check()
    assert directory.trouble is Trouble.GONE


def test_what_is_tried_leaves_no_trace_and_works_without_files_that_have_no_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert used_directory.write_error(str(tmp_path)) == 0
    assert not list(tmp_path.iterdir())
    assert used_directory.write_error(str(tmp_path / "none")) == errno.ENOENT

    def refuse(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "")

    monkeypatch.setattr(os, "open", refuse)
    assert used_directory.write_error(str(tmp_path)) == 0
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert used_directory.write_error(str(tmp_path)) == errno.EACCES


def test_a_quota_that_is_used_up_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = used(tmp_path)
    monkeypatch.setattr(used_directory, "write_error", lambda _: errno.EDQUOT)
    assert directory.check()
    assert directory.trouble is Trouble.FULL


def test_a_full_disk_does_not_flicker(tmp_path: Path) -> None:
    disk = Disk()
    directory = UsedDirectory(disk, str(tmp_path))
    for free, trouble in (
        (LEAST_FREE_BYTES, None),
        (LEAST_FREE_BYTES - 1, Trouble.FULL),
        (LEAST_FREE_BYTES + 1, Trouble.FULL),
        (2 * LEAST_FREE_BYTES, None),
    ):
        disk.free = free
        directory.check()
        assert directory.trouble is trouble
