"""What a mirror's source is to the sidecar, whichever kind of cluster it is.

Invariant: nothing is given out that the source could lose but by a disaster (docs/mirror.md, M3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from samelog.admin.mirror_answers import SourceState
from samelog.format import _kernels as kernels

RECORDS_AT = 57
"""Of a batch: where it says how many records it has."""
READ_BYTES = 4 << 20
"""What is taken from a source at once."""


class Where(NamedTuple):
    """A partition of a log at the source."""

    topic: str
    log_id: str
    partition: int


class BatchBefore(NamedTuple):
    """The batch that ends at an offset, or spans it: where it ends, its CRC, and whether it has a
    record at each of its offsets, as it had when it was written.
    """

    next_offset: int
    crc: int
    is_whole: bool = True


def first_of(data: bytes) -> BatchBefore:
    """The first of whole batches."""
    header = kernels.batch_headers(data, 0, len(data))[0]
    records = int.from_bytes(data[RECORDS_AT : RECORDS_AT + 4], "big")
    return BatchBefore(int.from_bytes(data[:8], "big") + header[2], header[9], records == header[2])


class BatchReader(Protocol):
    """Reads one partition from an offset on."""

    async def next(self) -> bytes:
        """Whole batches, when there are any, some megabytes at most. Raises SourceUnreadable,
        MirrorStopped.
        """

    async def close(self) -> None:
        """Read no more."""


class SourceCluster(Protocol):
    """A cluster that is mirrored."""

    keeps_epochs: bool

    async def state(self, patterns: Sequence[str], groups: Sequence[str]) -> SourceState:
        """Its topics, and the positions of groups in them. Raises SourceUnreadable."""

    async def schemas(self, topic: str) -> Sequence[str]:
        """The versions of a topic's schema, the first one first. Raises SourceUnreadable."""

    async def read(self, where: Where, offset: int) -> BatchReader:
        """A reader; the first batches may lie before the offset. Raises SourceUnreadable,
        MirrorStopped.
        """

    async def batch_before(self, where: Where, offset: int) -> BatchBefore | None:
        """The batch that holds what is before an offset; None: there is nothing there. Raises
        SourceUnreadable, MirrorStopped.
        """

    async def offset_at(self, where: Where, timestamp_ms: int) -> int:
        """The first offset that is as new, or the end. Raises SourceUnreadable."""

    async def close(self) -> None:
        """End all connections."""
