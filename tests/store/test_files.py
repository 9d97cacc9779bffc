"""The file system seam: what it opens, what it makes durable, and how it fails."""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from samelog.format.errors import CorruptLog, DirectoryInUse
from samelog.store.disk import os_file
from samelog.store.disk.directories import make_durable_directory
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import DiskFault, NoSuchFile, OsFileSystem
from tests.patience import PATIENCE_S
from tests.store.storage import FS


def _plant_socket(path: Path) -> None:
    """A socket's path may only be short, so it is bound where it is short."""
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(path.parent, os.O_PATH)
        server.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)


PLANTS: dict[str, Callable[[Path], None]] = {
    "symbolic link": lambda path: path.symlink_to(path.parent / "target"),
    "pipe": os.mkfifo,
    "directory": Path.mkdir,
    "socket": _plant_socket,
}


@pytest.fixture(params=PLANTS)
def planted(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Something that is no regular file, beside a target that must not be touched."""
    (tmp_path / "target").write_bytes(b"secret")
    path = tmp_path / "log.0.0"
    PLANTS[request.param](path)
    return path


@pytest.mark.parametrize("writable", [False, True])
def test_only_regular_files_are_opened(planted: Path, writable: bool) -> None:
    with pytest.raises(CorruptLog, match=r"log\.0\.0"):
        FS.open(planted, writable=writable)
    with pytest.raises(CorruptLog, match=r"log\.0\.0"):
        FS.open(planted, create=True)
    with pytest.raises(CorruptLog, match=r"log\.0\.0"):
        FS.read_file(planted, 100)
    assert (planted.parent / "target").read_bytes() == b"secret"


def test_devices_are_refused() -> None:
    with pytest.raises(CorruptLog, match="/dev/null"):
        FS.open("/dev/null", writable=True)


def test_a_directory_that_is_there_may_not_be_durable_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who made it may have died, or its sync failed."""
    synced: list[str] = []
    monkeypatch.setattr(OsFileSystem, "sync_directory", lambda self, path: synced.append(path))
    (tmp_path / "there").mkdir()
    make_durable_directory(FS, str(tmp_path / "there"))
    make_durable_directory(FS, str(tmp_path / "new"))
    assert synced == [str(tmp_path)] * 2
    assert (tmp_path / "new").is_dir()


def test_linked_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    for call in (FS.list_directory, FS.make_directory, FS.sync_directory, FS.remove_tree):
        with pytest.raises(CorruptLog, match="link"):
            call(link)
    assert (tmp_path / "real").is_dir()


def test_what_is_made_is_private(tmp_path: Path) -> None:
    FS.make_directory(tmp_path / "d")
    FS.open(tmp_path / "d" / "f", create=True).close()
    FS.write_atomically(tmp_path / "d" / "g", b"x")
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    assert {stat.S_IMODE((tmp_path / "d" / name).stat().st_mode) for name in "fg"} == {0o600}


def test_missing_things_have_their_own_error(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    for call in (FS.open, FS.unlink, FS.size, FS.list_directory, FS.modified_ns):
        with pytest.raises(NoSuchFile, match="gone"):
            call(gone)
    with pytest.raises(NoSuchFile, match="gone"):
        FS.read_file(gone, 10)


def test_reading_and_writing_at_positions(tmp_path: Path) -> None:
    file = FS.open(tmp_path / "f", create=True)
    file.pwrite(b"abcdef", 2)
    file.pwrite(memoryview(b"XY"), 0)
    buffer = bytearray(b"........")
    assert file.pread(100, 1) == b"Yabcdef"
    assert file.pread(3, 6) == b"ef"
    assert file.pread(3, 60) == b""
    assert file.pread_into(buffer, 4) == 4
    assert buffer == b"cdef...."
    file.truncate(3)
    assert (file.size(), file.pread(10, 0)) == (3, b"XYa")
    file.close()


def test_atomic_writes_replace_and_survive_leftovers(tmp_path: Path) -> None:
    target = tmp_path / "marks"
    (tmp_path / "marks.tmp").symlink_to(tmp_path / "elsewhere")
    FS.write_atomically(target, b"one")
    FS.write_atomically(target, b"two", durable=False)
    assert target.read_bytes() == b"two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["marks"]


def test_small_files_have_a_limit(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    assert FS.read_file(tmp_path / "f", 5) == b"12345"
    with pytest.raises(CorruptLog, match="longer than 4 bytes"):
        FS.read_file(tmp_path / "f", 4)


def test_remove_tree_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "f").write_bytes(b"x")
    FS.make_directory(tmp_path / "d")
    (tmp_path / "d" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "d" / "sub").mkdir()
    FS.remove_tree(tmp_path / "d")
    assert not FS.exists(tmp_path / "d")
    assert (tmp_path / "kept" / "f").exists()


def test_reserving_keeps_the_size_and_truncating_gives_back(tmp_path: Path) -> None:
    file = FS.open(tmp_path / "f", create=True)
    file.pwrite(b"x" * 5000, 0)
    file.preallocate(5000, 8 << 20)
    reserved = (tmp_path / "f").stat().st_blocks * 512
    assert file.size() == 5000
    assert reserved > 8 << 20
    file.truncate(5000)
    assert (tmp_path / "f").stat().st_blocks * 512 <= 8192
    file.close()


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """Files of this process cannot grow further: the one full disk that needs no privilege."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_told_from_a_failing_one(tmp_path: Path) -> None:
    file = FS.open(tmp_path / "f", create=True)
    with file_size_limit(4096):
        file.preallocate(0, 1 << 20)
        with pytest.raises(NoSpace, match=r"f: cannot write: File too large") as full:
            file.pwrite(b"x" * 8192, 0)
    assert full.value.error_number == errno.EFBIG
    file.pwrite(b"fine again", 0)
    file.close()
    with pytest.raises(DiskFault, match="closed"):
        file.pwrite(b"x", 0)


def test_a_file_with_a_failed_sync_is_never_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "broken")

    file = FS.open(tmp_path / "f", create=True)
    file.pwrite(b"x", 0)
    monkeypatch.setattr(os_file, "_sync_data", fail)
    with pytest.raises(DiskFault, match="cannot sync"):
        file.datasync()
    monkeypatch.undo()
    for use in (
        file.datasync,
        file.size,
        lambda: file.pread(1, 0),
        lambda: file.pread_into(bytearray(1), 0),
        lambda: file.pwrite(b"y", 0),
        lambda: file.truncate(0),
        lambda: file.preallocate(0, 1),
    ):
        with pytest.raises(DiskFault, match="after a failed sync"):
            use()
    file.close()


def test_closing_waits_for_a_sync_in_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    synced: list[int] = []

    def slow_sync(descriptor: int) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        os.fsync(descriptor)
        synced.append(descriptor)

    monkeypatch.setattr(os_file, "_sync_data", slow_sync)
    file = FS.open(tmp_path / "f", create=True)
    thread = threading.Thread(target=file.datasync)
    thread.start()
    assert begun.wait(PATIENCE_S)
    file.close()
    os.fstat(file.fileno())  # still open
    go_on.set()
    thread.join(PATIENCE_S)
    assert synced == [file.fileno()]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file.fileno())
    file.datasync()  # given up by its owner: nothing to do


def test_one_process_holds_a_lock_and_is_named(tmp_path: Path) -> None:
    first = FS.lock(tmp_path / "session.lock")
    with pytest.raises(DirectoryInUse, match=rf"held by process {os.getpid()}"):
        FS.lock(tmp_path / "session.lock")
    first.close()
    FS.lock(tmp_path / "session.lock").close()


def test_free_bytes_are_those_of_the_disk(tmp_path: Path) -> None:
    facts = os.statvfs(tmp_path)
    assert 0 < FS.free_bytes(tmp_path) <= facts.f_blocks * facts.f_frsize
