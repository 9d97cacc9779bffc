"""Reads that threads carry out: whole batches, whatever becomes of the log meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from samelog.format import _kernels as kernels
from samelog.format.errors import CorruptLog
from samelog.store.disk.files import OsFileSystem
from samelog.store.merged.log import MergedLog


def batches(count: int, size: int = 100) -> bytes:
    one = [
        kernels.build_batches([bytes(size)], timestamps=1, batch_bytes=1, max_record_bytes=1 << 22)
        for _ in range(count)
    ]
    return b"".join(one)


def log_with(path: Path, *pieces: bytes) -> MergedLog:
    merged = MergedLog.open(OsFileSystem(), path / "t-0", topic="t", topic_id="id-1", partition=0)
    for data in pieces:
        merged.append(bytearray(data), base_offset=merged.next_offset, leader_epoch=1)
    return merged


def test_it_reads_as_the_log_does(tmp_path: Path) -> None:
    merged = log_with(tmp_path, batches(50), batches(1, 3 << 20), batches(3))
    byte = 0
    while byte < merged.end()[1]:
        data = merged.detached(0, byte, 1000)()
        assert data == merged.read(0, byte, 1000)
        byte += len(data)
    assert merged.detached(0, byte, 1000)() == b""
    merged.close()


def test_it_goes_on_when_the_log_is_closed_and_leaves_no_descriptor(tmp_path: Path) -> None:
    merged = log_with(tmp_path, batches(10))
    whole, before = merged.read(0, 0, 1 << 20), len(os.listdir("/proc/self/fd"))
    read = merged.detached(0, 0, 1 << 20)
    merged.close()
    assert read() == whole
    del read
    assert len(os.listdir("/proc/self/fd")) < before


def test_what_was_cut_meanwhile_is_not_made_up(tmp_path: Path) -> None:
    merged = log_with(tmp_path, batches(10))
    read = merged.detached(0, 0, 1 << 20)
    file = next(path for path in (tmp_path / "t-0").iterdir() if path.suffix == ".log")
    os.truncate(file, 0)
    with pytest.raises(CorruptLog, match="the batch is cut"):
        read()
    merged.close()
