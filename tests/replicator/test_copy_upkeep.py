"""Copies are made durable while they are restarted, dropped or moved."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from samelog.replicator.pull import copy_upkeep
from samelog.replicator.pull.copy import Copy
from samelog.replicator.pull.copy_directory import CopyDirectory
from samelog.replicator.pull.copy_upkeep import CopyUpkeep
from samelog.replicator.pull.share import Share
from samelog.store.disk.disk_errors import DirectoryGone, DiskFault, NoSpace
from samelog.store.disk.files import File, OsFileSystem
from samelog.store.merged import log as merged_log
from samelog.store.merged.truncation import LogStart, not_truncated
from samelog.wire.pull.copies import CopyState
from tests.replicator.session_files import batch
from tests.runtime.peers import in_loop

FS = OsFileSystem()
Change = Callable[[CopyDirectory, Copy], object]


class SlowDisk:
    """Something happens while it syncs. Implements runtime.disk.syncer.Syncer."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.fault: DiskFault | None = None
        self._meanwhile = meanwhile

    async def sync(self, files: Iterable[File]) -> None:
        """Never makes anything durable, as nobody looks."""
        del files
        self._meanwhile()
        if self.fault is not None:
            raise self.fault


def begin_anew(directory: CopyDirectory, copy: Copy) -> None:
    copy.successor = "flights-2"
    directory.begin_anew(copy)


def set_aside(directory: CopyDirectory, copy: Copy) -> None:
    directory.set_aside_others(copy.name[0], "flights-2")


def share(directory: CopyDirectory, copy: Copy) -> None:
    """Another member of the group has it now."""
    log = directory.copies["trains", 0].log
    directory.share({("trains", 0): Share(log.topic_id, 0)})


def move_away(directory: CopyDirectory, copy: Copy) -> None:
    path = Path(copy.log.path)
    path.rename(path.with_name("elsewhere"))


def sync_while(
    path: Path, monkeypatch: pytest.MonkeyPatch, change: Change, *, fails: bool = False
) -> tuple[CopyDirectory, Copy, Copy]:
    """Two copies that were written to are synced, and one of them is changed meanwhile."""
    monkeypatch.setattr(merged_log, "SAVE_MARKS_EVERY_BYTES", 1)  # every sync writes marks
    told: list[Copy] = []
    directory = CopyDirectory(str(path), FS, told.append, {})
    directory.open()
    [changed] = directory.of_topic("flights", "flights-1", 1)
    [other] = directory.of_topic("trains", "trains-1", 1)
    for copy in (changed, other):
        copy.log.append(bytearray(batch(b"value")), base_offset=0, leader_epoch=1)
    disk = SlowDisk(lambda: change(directory, changed))
    if fails:
        disk.fault = DiskFault(str(path), "sync", errno.EIO)
    in_loop(CopyUpkeep(directory, FS, disk).sync)
    directory.close()
    return directory, changed, other


@pytest.mark.parametrize("change", [begin_anew, set_aside, share])
def test_what_is_closed_while_it_is_synced_stops_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    directory, closed, other = sync_while(tmp_path, monkeypatch, change)
    assert (other.state, other.fault) == (CopyState.WAITING, None)
    assert other.log.durable_offset == 1
    assert closed.state is not CopyState.STOPPED
    assert closed.fault is None
    assert all(copy.state is CopyState.WAITING for copy in directory.copies.values())


def test_a_copy_that_is_moved_while_it_is_synced_stops_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, moved, other = sync_while(tmp_path, monkeypatch, move_away)
    assert moved.state is CopyState.STOPPED
    assert isinstance(moved.fault, DirectoryGone)
    assert (other.state, other.fault, other.log.durable_offset) == (CopyState.WAITING, None, 1)


def test_a_failed_sync_stops_its_copies_but_none_that_took_a_place_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, old, other = sync_while(tmp_path, monkeypatch, begin_anew, fails=True)
    assert other.state is CopyState.STOPPED
    assert isinstance(other.fault, DiskFault)
    new = directory.copies["flights", 0]
    assert new is not old
    assert (old.fault, new.state, new.fault) == (None, CopyState.WAITING, None)


def test_a_lack_of_room_stops_no_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The copy that lacks it is synced once there is some; the others at once."""
    directory, lacks = CopyDirectory(str(tmp_path), FS, lambda copy: None, {}), [True]
    directory.open()
    [poor] = directory.of_topic("flights", "flights-1", 1)
    [other] = directory.of_topic("trains", "trains-1", 1)
    for copy in (poor, other):
        copy.log.append(bytearray(batch(b"value")), base_offset=0, leader_epoch=1)
    opens = poor.log._dirty._open_changed

    def open_changed() -> list[File]:
        if lacks:
            raise NoSpace("marks", "open", errno.EMFILE)
        return opens()

    poor.log._dirty._open_changed = open_changed  # type: ignore[method-assign]
    upkeep = CopyUpkeep(directory, FS, SlowDisk(lambda: None))
    for _ in range(3):
        in_loop(upkeep.sync)
    assert {copy.state for copy in (poor, other)} == {CopyState.WAITING}
    assert (poor.log.durable_offset, other.log.durable_offset) == (0, 1)
    assert caplog.text.count("wait for their sync") == 1
    lacks.clear()
    in_loop(upkeep.sync)
    assert poor.log.durable_offset == 1
    directory.close()


def test_files_of_a_directory_that_takes_the_place_of_a_copy_are_not_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the place after the check, while a thread lists the archived segments."""
    directory = CopyDirectory(str(tmp_path), FS, lambda copy: None, {})
    directory.open()
    [copy] = directory.of_topic("flights", "flights-1", 1)
    for offset in range(2):
        copy.log.append(bytearray(batch(b"value")), base_offset=offset, leader_epoch=1)
        copy.log.roll()
    path, names = Path(copy.log.path), (f"{0:020d}.log", f"{0:020d}.timeindex")
    kept = {name: (path / name).read_bytes() for name in names}

    def replaced(fs: OsFileSystem, below_path: str, below: int) -> list[int]:
        found = not_truncated(fs, below_path, below)
        path.rename(path.with_name("elsewhere"))
        shutil.copytree(path.with_name("elsewhere"), path)
        return found

    upkeep = CopyUpkeep(directory, FS, SlowDisk(lambda: None))
    upkeep.archived(copy, LogStart(1, 1, checksum=0), keep=False)
    with monkeypatch.context() as patched:
        patched.setattr(copy_upkeep, "not_truncated", replaced)
        in_loop(upkeep.truncate)
    assert {name: (path / name).read_bytes() for name in names} == kept
    directory.close()


def test_a_copy_is_marked_as_deleted_once_it_is_synced(tmp_path: Path) -> None:
    directory = CopyDirectory(str(tmp_path), FS, lambda copy: None, {})
    directory.open()
    [copy] = directory.of_topic("flights", "flights-1", 1)
    copy.log.append(bytearray(batch(b"value")), base_offset=0, leader_epoch=1)
    upkeep = CopyUpkeep(directory, FS, SlowDisk(lambda: None))
    copy.state = CopyState.GONE
    upkeep.changed(copy)
    upkeep.mark_deleted()
    assert not copy.log.is_deleted
    in_loop(upkeep.sync)
    upkeep.mark_deleted()
    assert copy.log.is_deleted
    directory.close()
    directory = CopyDirectory(str(tmp_path), FS, lambda copy: None, {})
    directory.open()
    [again] = directory.of_topic("flights", "flights-1", 1)
    assert again.log.is_deleted
    directory.close()


def test_a_copy_whose_sync_was_cancelled_is_not_marked_as_deleted(tmp_path: Path) -> None:
    """The client stops while the disk is slow: its last step must not vouch for those bytes."""
    directory = CopyDirectory(str(tmp_path), FS, lambda copy: None, {})
    directory.open()
    [copy] = directory.of_topic("flights", "flights-1", 1)
    copy.log.append(bytearray(batch(b"value")), base_offset=0, leader_epoch=1)
    copy.state = CopyState.GONE

    def cancel() -> None:
        raise asyncio.CancelledError

    async def main() -> None:
        upkeep = CopyUpkeep(directory, FS, SlowDisk(cancel))
        upkeep.changed(copy)
        with pytest.raises(asyncio.CancelledError):
            await upkeep.sync()
        upkeep.mark_deleted()
        assert not copy.log.is_deleted

    in_loop(main)
    directory.close()


def test_archived_files_of_a_copy_are_truncated(tmp_path: Path) -> None:
    directory = CopyDirectory(str(tmp_path), FS, lambda copy: None, {})
    directory.open()
    [copy] = directory.of_topic("flights", "flights-1", 1)
    for offset in range(2):
        copy.log.append(bytearray(batch(b"value")), base_offset=offset, leader_epoch=1)
        copy.log.roll()
    upkeep = CopyUpkeep(directory, FS, SlowDisk(lambda: None))
    upkeep.archived(copy, LogStart(1, 1, checksum=0), keep=False)
    in_loop(upkeep.truncate)
    path = Path(copy.log.path)
    assert (path / (f"{0:020d}.log")).read_bytes() == b""
    assert not (path / (f"{0:020d}.timeindex")).exists()
    assert (path / (f"{1:020d}.log")).read_bytes() != b""
    directory.close()
