"""What of a source's batches comes next for a mirror. Pure.

A source gives whole batches, the first of which may lie before the wanted offset. What is before
that is passed over. Everything else has to follow, batch by batch.

Invariant: what is given out begins at `expected`, has no hole in it, and is to the byte what the
source gave (docs/mirror.md, M2, M4, M5).
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import NamedTuple

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.mirror.errors import MirrorStopped

_OFFSET, _RECORDS = struct.Struct(">q"), struct.Struct(">i")
_RECORDS_AT = 57
CHECKSUMS_KEPT = 4096


class Followed(NamedTuple):
    """Batches that come next; the offset of the batch behind a hole, if there is one; and whether
    the wanted end is reached.
    """

    data: bytes
    hole_up_to: int | None
    is_over: bool


class BatchFollower:
    """One partition's."""

    def __init__(self, expected: int, checksum: int | None, *, stop: int | None = None) -> None:
        """`expected`: the mirror's next offset, where its running checksum is `checksum` (None:
        not known). `stop`: nothing at this offset or behind it is wanted.
        """
        self.expected = expected
        self.checksum = checksum
        self._stop = stop
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
        begin = end = None
        for header in kernels.batch_headers(data, 0, len(data)):
            base = _OFFSET.unpack_from(data, header[0])[0]
            if base + header[2] <= self.expected:
                continue
            if base > self.expected or self._ends_before(base + header[2]):
                is_over = base == self.expected or self.is_over
                hole = None if is_over else base
                return Followed(self._cut(data, begin, end), hole, is_over)
            self._check(data, header, base)
            begin = header[0] if begin is None else begin
            end = header[0] + header[1]
            self._step(data[header[0] : end], header[2])
        return Followed(self._cut(data, begin, end), None, self.is_over)

    def _ends_before(self, next_offset: int) -> bool:
        return self._stop is not None and next_offset > self._stop

    def _check(self, data: bytes, header: tuple[int, ...], base: int) -> None:
        if base != self.expected:
            text = f"no batch begins at offset {self.expected}: the source has others than before"
            raise MirrorStopped(text)
        if _RECORDS.unpack_from(data, header[0] + _RECORDS_AT)[0] != header[2]:
            text = f"the batch at offset {base} lacks records: the topic was compacted"
            raise MirrorStopped(text)

    def _step(self, batch: bytes, records: int) -> None:
        self.expected += records
        if self.checksum is not None:
            self.checksum = kernels.crc32c(batch, self.checksum)
            self._checksums[self.expected] = self.checksum
            if len(self._checksums) > CHECKSUMS_KEPT:
                self._checksums.popitem(last=False)

    def _cut(self, data: bytes, begin: int | None, end: int | None) -> bytes:
        return b"" if begin is None else data[begin:end]

    def leave_gap(self, up_to: int, checksum: int | None) -> None:
        """The mirror goes on there."""
        self.expected, self.checksum = up_to, checksum
        self._checksums.clear()

    def compare(self, offset: int, checksum: int) -> None:
        """The source's nodes agree on a running checksum. Raises MirrorStopped (M12)."""
        own = self._checksums.get(offset, checksum)
        if own != checksum:
            text = f"the running checksum at {offset} is {own:08x}, the source's {checksum:08x}"
            raise MirrorStopped(text)
