"""Rounds of syncs of merged logs while the system lacks descriptors."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock, patch

import pytest

from samelog.format.file_names import MARKS_FILE, PARTITION_FILE
from samelog.format.transactions import decode_aborted, marker_batch
from samelog.sequencer.merge import merging as merging_module
from samelog.sequencer.merge.merger import PartitionMerger
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.store.disk.dirty_files import DirtyFiles
from samelog.store.disk.disk_errors import DiskFault, NoSpace
from samelog.store.disk.files import File, OsFileSystem, StrPath
from samelog.store.disk.os_file import OsFile
from samelog.store.merged.log import MergedLog
from tests.patience import PATIENCE_S
from tests.runtime.peers import in_loop
from tests.sequencer.test_session_store import machine_with_input
from tests.store.merged_parts import merge
from tests.store.storage import batch
from tests.subscriber.merged import Growing
from tests.subscriber.transactions import transactional

OTHER = 2
"""The partition whose files cannot be opened."""


class Synced:
    """Implements Syncer: notes the paths of each round."""

    def __init__(self) -> None:
        self.rounds: list[set[str]] = []

    async def sync(self, files: object) -> None:
        assert isinstance(files, list)
        self.rounds.append({file.path for file in files})
        await asyncio.sleep(0)


def opened(path: Path, syncer: Synced) -> Merging:
    """Two partitions with a record each."""
    machine = machine_with_input()
    machine.apply(CreateTopicCommand("d" * 32, "u", 1, {}, 0))
    events = Mock(sync_raft_log=AsyncMock())
    events.files_synced_with_merged_logs.return_value = []
    merging = Merging(
        OsFileSystem(), str(path), Mock(), machine, syncer=syncer, events=events, measures=Mock()
    )
    for number in (1, OTHER):
        merge(merging.partition(number).log, batch(number))
        merging._changed.dirty.add(number)
    return merging


def lacks_descriptors(merging: Merging, times: int, number: int) -> AbstractContextManager[Any]:
    """Fail the opening of one partition's directory so often."""
    opens, dirty = DirtyFiles._open_changed, merging.partitions[OTHER].log._dirty
    left = [None] * times

    def instead(each: DirtyFiles) -> list[File]:
        if each is dirty and left:
            left.pop()
            raise NoSpace("directory", "open", number)
        return opens(each)

    return patch.object(DirtyFiles, "_open_changed", instead)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_round_without_descriptors_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(merging_module, "UNSYNCED_RETRY_S", 0)
    syncer = Synced()
    merging = opened(tmp_path, syncer)

    async def main() -> None:
        with lacks_descriptors(merging, 2, number):
            await merging.sync()
        assert merging.merged_durable([1, OTHER]) == {1: 1, OTHER: 1}
        first, *_, last = syncer.rounds
        assert not any("u-0" in path for path in first)
        assert {Path(path).name for path in last} >= {"u-0", f"{0:020d}.log"}
        merge(merging.partition(1).log, batch(3))
        merging._changed.dirty.add(1)
        await merging.sync()
        assert merging.merged_durable([1]) == {1: 2}

    in_loop(main)


def test_an_aborted_transaction_is_stored_once_there_is_room(tmp_path: Path) -> None:
    """The records of its marker count at once, and no copy differs from this one meanwhile."""
    log, twin = Growing(tmp_path).log, Growing(tmp_path, topic="twin").log
    records = bytes(transactional(1, b"x"))
    marker = bytes(marker_batch(1, 0, is_commit=False, coordinator_epoch=1, at_ms=1))
    index = f"{0:020d}.txnindex"
    with patch.object(OsFileSystem, "open", opens_but(index)):
        for data in (records, marker):
            merge(log, data)
        assert [each.producer_id for each in log.aborted(0, 2)] == [1]
        with pytest.raises(NoSpace):
            log.take_dirty()
        assert log.durable_offset == 0
    merge(twin, records, marker)
    assert log._chain.checksum == twin._chain.checksum
    assert index in {Path(file.path).name for file in log.take_dirty()}
    assert len(decode_aborted((tmp_path / "t-0" / index).read_bytes())) == 1


def opens_but(name: str) -> Callable[..., OsFile]:
    """Open every file but those of one name."""
    opens = OsFileSystem.open

    def instead(self: OsFileSystem, path: StrPath, **how: bool) -> OsFile:
        if Path(path).name == name:
            raise NoSpace(name, "open", errno.ENFILE)
        return opens(self, path, **how)

    return instead


def test_a_node_that_stops_waits_for_no_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What it could not sync is recovered as after a crash; all else is durable."""
    syncer = Synced()
    merging = opened(tmp_path, syncer)

    async def main() -> None:
        with lacks_descriptors(merging, 1000, errno.ENOSPC):
            await asyncio.wait_for(merging.sync(waits_for_room=False), PATIENCE_S)
        assert merging.merged_durable([1, OTHER]) == {1: 1, OTHER: 0}

    in_loop(main)
    assert caplog.text.count("wait for their sync") == 1


def test_a_lack_of_room_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log may be on the disk that is full."""
    monkeypatch.setattr(merging_module, "UNSYNCED_RETRY_S", 0)
    merging = opened(tmp_path, Synced())

    async def main() -> None:
        with lacks_descriptors(merging, 20, errno.ENOSPC):
            await merging.sync()

    in_loop(main)
    assert caplog.text.count("wait for their sync") == 1


def test_logs_that_cannot_rest_end_nothing(tmp_path: Path) -> None:
    merging = opened(tmp_path, Synced())

    async def main() -> None:
        await merging.sync()
        merging._changed.awake.clear()
        fault = NoSpace("directory", "list", errno.ENFILE)
        with patch.object(MergedLog, "rest", Mock(side_effect=fault)) as rest:
            merging.rest()
        assert rest.call_count == 2

    in_loop(main)


def test_a_failed_sync_is_final_although_it_names_a_lack(tmp_path: Path) -> None:
    """A disk does not tell twice what it could not write."""
    merging = opened(tmp_path, Synced())
    fault = NoSpace("log", "sync", errno.ENOSPC)

    async def main() -> None:
        failing = patch.object(Synced, "sync", AsyncMock(side_effect=fault))
        with failing, pytest.raises(DiskFault):
            await merging.sync()
        with pytest.raises(DiskFault):
            await merging.sync()
        assert merging.merged_durable([1]) == {1: 0}

    in_loop(main)


def test_a_full_disk_is_logged_once_and_so_is_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A partition tried each second, and logged each failure."""
    caplog.set_level(logging.INFO, merging_module.__name__)
    merging = opened(tmp_path, Synced())
    full = NoSpace("log", "write", errno.ENOSPC)

    async def main() -> None:
        for _ in range(2):
            partition = merging.partition(1)
            with patch.object(PartitionMerger, "step", Mock(side_effect=[full, full, full, 0, 9])):
                for _ in range(5):
                    merging._step(1, partition)
                    merging._try_again(1)

    in_loop(main)
    found = [record.getMessage() for record in caplog.records]
    assert found == [f"partition 0 of t waits: {full}", "partition 0 of t resumes"] * 2


def test_a_directory_without_a_legible_name_is_reported_with_its_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The line promised a copy from another node to clusters of one."""
    merging = opened(tmp_path, Synced())
    merging._machine.state.partitions.by_number[1].next_offset = 1
    path = merging.partition(1).log.path
    in_loop(merging.sync)
    merging._close(1, merging.partitions.pop(1), "closed")
    for name in (PARTITION_FILE, MARKS_FILE):
        Path(path, name).write_bytes(b"damaged")
    assert merging.partition(1).log.next_offset == 0
    [line] = [r.getMessage() for r in caplog.records if r.name == merging_module.__name__]
    aside = tmp_path / "quarantine" / "t-0.quarantined-1"
    assert f"moved to {aside}" in line
    assert "If there is no other member, or none has it" in line
    assert f"move the directory back to {path}" in line
    assert "samelog recover void t 0" in line
