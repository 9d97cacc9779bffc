"""Grows merged logs as a node or a pull client does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from samelog.format import _kernels as kernels
from samelog.store.disk.files import OsFileSystem
from samelog.store.merged.log import MergedLog

FS = OsFileSystem()


class Growing:
    """One partition that grows by calls."""

    def __init__(
        self, root: Path, topic: str = "t", partition: int = 0, topic_id: str = "id-1"
    ) -> None:
        self.path = root / f"{topic}-{partition}"
        self.log = MergedLog.open(
            FS, self.path, topic=topic, topic_id=topic_id, partition=partition
        )

    def append(
        self, *values: bytes | None, timestamp: int | Sequence[int] = 1, batch_bytes: int = 1 << 16
    ) -> None:
        """Append records."""
        data = kernels.build_batches(
            list(values),
            timestamps=timestamp,
            batch_bytes=batch_bytes,
            max_record_bytes=1 << 20,
        )
        self.log.append(bytearray(data), base_offset=self.log.next_offset, leader_epoch=1)

    def count(self, start: int, stop: int) -> None:
        """Append the numbers [start, stop), in small batches."""
        self.append(*numbers(start, stop), batch_bytes=200)

    def roll(self) -> None:
        """Begin another segment."""
        self.log.roll()

    def make_durable(self) -> None:
        """Sync everything, and note it in the marks."""
        offset = self.log.next_offset
        for file in self.log.take_dirty():
            file.datasync()
        self.log.mark_durable(offset)
        self.log.save_marks()

    def segment(self, base: int) -> Path:
        """The log file of a segment."""
        return self.path / f"{base:020d}.log"

    def archive(self, base: int) -> None:
        """Truncate a segment as an archiver does: an empty file takes its name."""
        empty = self.path / "empty"
        empty.touch()
        os.replace(empty, self.segment(base))


def numbers(start: int, stop: int) -> list[bytes]:
    """Values by which records can be told."""
    return [b"%06d" % number for number in range(start, stop)]
