"""A small merged log of three segments, for tests."""

from __future__ import annotations

from pathlib import Path

from samelog.store.merged.log import MergedLog
from tests.store.merged import Oracle
from tests.store.storage import (
    batch,
    open_merged,
    sync_merged,
)

ONE, TWO, THREE = batch(1), batch(2, records=3), batch(3, size=500, records=2)
LOG_0, INDEX_0 = f"{0:020d}.log", f"{0:020d}.index"
SEGMENTS = ([ONE, TWO], [THREE, ONE], [TWO, THREE])
"""Offsets 0..3, 4..6, 7..11."""


def merge(log: MergedLog, *data: bytes) -> None:
    """Append batches, each by itself."""
    for one in data:
        log.append(bytearray(one), base_offset=log.next_offset, leader_epoch=3)


def write(path: Path, *segments: list[bytes]) -> tuple[MergedLog, Oracle]:
    """A durable log of these segments."""
    log, oracle = open_merged(path), Oracle()
    for several in segments:
        log.roll()
        oracle.roll()
        merge(log, *several)
        for data in several:
            oracle.append(data, epoch=3)
    sync_merged(log)
    log.save_marks()
    return log, oracle
