"""Which cluster a directory belongs to: the first one met, also while its id cannot be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from samelog.format.batch import Bytes
from samelog.replicator.cluster_pin import ClusterPin
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import OsFileSystem, StrPath
from samelog.wire.errors import FaultCode, ProtocolFault

FIRST, OTHER = "a" * 32, "b" * 32


class SmallDisk(OsFileSystem):
    """Has no room until it is said."""

    is_full = True

    def write_atomically(self, path: StrPath, data: Bytes, *, durable: bool = True) -> None:
        if self.is_full:
            raise NoSpace(os.fspath(path), "write", errno.ENOSPC)
        super().write_atomically(path, data, durable=durable)


def test_the_first_cluster_is_the_only_one(tmp_path: Path) -> None:
    ClusterPin(OsFileSystem(), str(tmp_path)).meet(FIRST)
    pin = ClusterPin(OsFileSystem(), str(tmp_path))
    pin.meet(FIRST)
    with pytest.raises(ProtocolFault, match=f"belongs to the cluster .* {FIRST}") as refused:
        pin.meet(OTHER)
    assert refused.value.code is FaultCode.WRONG_CLUSTER


def test_a_node_that_has_no_cluster_yet_says_nothing(tmp_path: Path) -> None:
    pin = ClusterPin(OsFileSystem(), str(tmp_path))
    pin.meet("")
    assert not list(tmp_path.iterdir())
    pin.meet(FIRST)
    pin.meet("")


def test_a_full_disk_stops_nothing_and_the_id_is_written_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SmallDisk()
    pin = ClusterPin(disk, str(tmp_path))
    for _ in range(3):
        pin.meet(FIRST)
    assert len(caplog.messages) == 1, "it is told once"
    with pytest.raises(ProtocolFault):
        pin.meet(OTHER)
    disk.is_full = False
    pin.meet(FIRST)
    with pytest.raises(ProtocolFault):
        ClusterPin(disk, str(tmp_path)).meet(OTHER)


def test_who_removes_the_file_may_go_to_another_cluster(tmp_path: Path) -> None:
    pin = ClusterPin(OsFileSystem(), str(tmp_path))
    pin.meet(FIRST)
    (tmp_path / "cluster.json").unlink()
    pin.meet(OTHER)
    with pytest.raises(ProtocolFault):
        pin.meet(FIRST)


def test_a_promotion_is_followed_and_who_is_of_before_is_left(tmp_path: Path) -> None:
    pin = ClusterPin(OsFileSystem(), str(tmp_path))
    since, beside = f"{FIRST}-1-{'c' * 16}", f"{FIRST}-1-{'d' * 16}"
    pin.meet(FIRST)
    pin.meet(since)
    for other in (FIRST, beside, OTHER):
        with pytest.raises(ProtocolFault) as refused:
            ClusterPin(OsFileSystem(), str(tmp_path)).meet(other)
        assert refused.value.code is FaultCode.WRONG_CLUSTER
    pin.meet(since)
