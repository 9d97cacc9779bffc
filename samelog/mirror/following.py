"""What of a source's batches comes next for a mirror. Pure.

A source gives whole batches, the first of which may lie before the wanted offset. What is before
that is passed over. Everything else has to follow, batch by batch.

Invariant: what is given out begins at `expected`, has no hole in it, and is to the byte what the
source gave, but for the empty batches that stand for what a source has compacted away
(docs/mirror.md, M2, M4, M5).
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import NamedTuple

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.format.void_batch import empty_batches
from samelog.mirror.errors import BatchRefused, MirrorStopped

_OFFSET, _EPOCH, _RECORDS = struct.Struct(">q"), struct.Struct(">i"), struct.Struct(">i")
_EPOCH_AT, _LAST_DELTA_AT, _RECORDS_AT = 12, 23, 57
CHECKSUMS_KEPT = 4096


def refused_batch(batch: bytes | memoryview, reason: str) -> BatchRefused:
    """What is wrong with the first of these batches."""
    base = _OFFSET.unpack_from(batch)[0]
    (delta,) = _RECORDS.unpack_from(batch, _LAST_DELTA_AT)
    return BatchRefused(base, base + max(0, delta) + 1, reason)


class Followed(NamedTuple):
    """Batches that come next; the offset of the batch behind a hole, if there is one; and whether
    the wanted end is reached.
    """

    data: bytes
    hole_up_to: int | None
    is_over: bool


class _GivenOut:
    """What is given out of some batches, and what stands for the holes between them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pieces: list[bytes] = []
        self._begin = self._end = 0

    def take(self, begin: int, end: int) -> None:
        """These bytes."""
        if begin != self._end:
            self._cut()
            self._begin = begin
        self._end = end

    def put(self, batches: bytes) -> None:
        """Others, behind them."""
        self._cut()
        self._pieces.append(batches)

    def _cut(self) -> None:
        if self._begin < self._end:
            self._pieces.append(self._data[self._begin : self._end])
        self._begin = self._end

    def joined(self) -> bytes:
        """All of it."""
        self._cut()
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


class BatchFollower:
    """One partition's."""

    def __init__(
        self,
        expected: int,
        checksum: int | None,
        *,
        stop: int | None = None,
        is_compacted: bool = False,
    ) -> None:
        """`expected`: the mirror's next offset, where its running checksum is `checksum` (None:
        not known). `stop`: nothing at this offset or behind it is wanted. `is_compacted`: the
        source leaves holes, and its running checksums are of what was there before.
        """
        self.expected = expected
        self.checksum = None if is_compacted else checksum
        self._stop = stop
        self._is_compacted = is_compacted
        self._checksums: OrderedDict[int, int] = OrderedDict()
        """Offset -> running checksum there, behind the newest batches."""

    @property
    def is_over(self) -> bool:
        """Whether everything that is wanted is there."""
        return self._stop is not None and self.expected >= self._stop

    def take(self, data: bytes) -> Followed:
        """What comes next of whole batches. Raises MirrorStopped."""
        scan = kernels.scan(data, verify_crc=True, max_batch_bytes=HELD_BATCH_BYTES)
        if scan.end != len(data):
            reason = scan.error or "the last batch is cut"
            raise MirrorStopped(f"behind offset {self.expected}: {reason}")
        found = _GivenOut(data)
        for header in kernels.batch_headers(data, 0, len(data)):
            base = _OFFSET.unpack_from(data, header[0])[0]
            if self._is_compacted:
                self._fill(found, data, header)
            if base + header[2] <= self.expected:
                continue
            if base > self.expected or self._ends_before(base + header[2]):
                is_over = base == self.expected or self.is_over
                return Followed(found.joined(), None if is_over else base, is_over)
            self._check(base)
            end = header[0] + header[1]
            found.take(header[0], end)
            self._step(data[header[0] : end], header[2])
        return Followed(found.joined(), None, self.is_over)

    def _ends_before(self, next_offset: int) -> bool:
        return self._stop is not None and next_offset > self._stop

    def _fill(self, found: _GivenOut, data: bytes, header: tuple[int, ...]) -> None:
        """Empty batches for the hole before a batch, and for the rest of an empty one that spans
        the mirror's end: compaction makes one of many.
        """
        base = up_to = _OFFSET.unpack_from(data, header[0])[0]
        is_empty = not _RECORDS.unpack_from(data, header[0] + _RECORDS_AT)[0]
        if base < self.expected and is_empty:
            up_to = base + header[2]
        up_to = up_to if self._stop is None else min(up_to, self._stop)
        if up_to > self.expected:
            epoch = _EPOCH.unpack_from(data, header[0] + _EPOCH_AT)[0]
            found.put(empty_batches(self.expected, up_to, epoch))
            self.expected = up_to

    def _check(self, base: int) -> None:
        if base != self.expected:
            text = f"no batch begins at offset {self.expected}: the source has others than before"
            raise MirrorStopped(text)

    def _step(self, batch: bytes, records: int) -> None:
        self.expected += records
        if self.checksum is not None:
            self.checksum = kernels.crc32c(batch, self.checksum)
            self._checksums[self.expected] = self.checksum
            if len(self._checksums) > CHECKSUMS_KEPT:
                self._checksums.popitem(last=False)

    def leave_gap(self, up_to: int, checksum: int | None) -> None:
        """The mirror goes on there."""
        self.expected, self.checksum = up_to, None if self._is_compacted else checksum
        self._checksums.clear()

    def compare(self, offset: int, checksum: int) -> None:
        """The source's nodes agree on a running checksum. Raises MirrorStopped (M12)."""
        own = self._checksums.get(offset, checksum)
        if own != checksum:
            text = f"the running checksum at {offset} is {own:08x}, the source's {checksum:08x}"
            raise MirrorStopped(text)
