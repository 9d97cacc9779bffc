"""A topic that is a mirror: what its sidecar brings has offsets and epochs of the source.

The world is the source, too: it has what the publisher writes, batch behind batch. A log that is
restarted is mirrored from the source's beginning, with other records.

Invariant: batches of a log follow each other without holes.
"""

from __future__ import annotations

import struct

from samelog.format import _kernels as kernels
from samelog.format.names import MIRROR_SESSIONS
from samelog.sequencer.state.tables.mirror_source import MirrorSource

SESSION = MIRROR_SESSIONS + "eu"
SOURCE = MirrorSource("source", "t", "log", ["source"], keeps_epochs=True)
EPOCH = 7
_OFFSET, _EPOCH = struct.Struct(">q"), struct.Struct(">i")
_EPOCH_AT = 12


class MirroredLogs:
    """What one sidecar has brought."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}
        """Id of a log -> the offset behind the last batch."""

    def placed(self, log_id: str, data: bytes) -> bytes:
        """The batches, as the source has them."""
        found, end = bytearray(data), self._ends.get(log_id, 0)
        for header in kernels.batch_headers(data, 0, len(data)):
            _OFFSET.pack_into(found, header[0], end)
            _EPOCH.pack_into(found, header[0] + _EPOCH_AT, EPOCH)
            end += header[2]
        self._ends[log_id] = end
        return bytes(found)
