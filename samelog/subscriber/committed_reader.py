"""Reads what was committed of one partition, for `isolation="read_committed"`.

Until the first batch of a transaction comes, this is an ordinary reader. From then on a second one
goes ahead of it, until what it found says of the next records that they are decided. What was
aborted among them is left out. So a reader needs nothing but the bytes from where it begins, and a
log without transactions costs nothing more.

The second reader opens each file before the first one does. If compaction replaces a file between
the two, what was aborted is known and already gone; the other way round it would be handed out.

Invariant: no record is handed out before its transaction is decided, none that was aborted, and
none out of order; nothing else is left out.
"""

from __future__ import annotations

import msgspec

from samelog.format import _kernels as kernels
from samelog.format.transactions import (
    TRANSACTIONAL,
    Aborted,
    OpenTransactions,
    without_aborted,
)
from samelog.subscriber.tail_reader import Chunk, TailReader


class Scout:
    """Goes ahead of a reader."""

    def __init__(self, reader: TailReader) -> None:
        self.reader = reader
        self.known = OpenTransactions(reader.next_offset)
        self.stable = reader.next_offset
        """Below it everything is decided, as far as was looked. Any thread may read it."""
        self.aborted: list[Aborted] = []

    def look_beyond(self, offset: int, limit_bytes: int) -> bool:
        """Go on until what has this offset is decided; whether it is. Raises as `read`."""
        while self.stable <= offset:
            chunk = self.reader.read(limit_bytes)
            if chunk is None:
                return False
            self.known.offset = chunk.first_offset
            with memoryview(chunk.data)[: chunk.size] as data:
                self.aborted += self.known.take(data)
            self.stable = self.known.last_stable_offset
        return True

    def forget_below(self, offset: int) -> None:
        """What ended before this offset is read no more."""
        self.aborted = [each for each in self.aborted if each.last_offset >= offset]


class CommittedReader(TailReader):
    """One partition directory, of which only what was committed is read."""

    _scout: Scout | None = None
    _is_behind = False
    """Whether the scout has opened the file before this reader did."""

    def read(self, limit_bytes: int) -> Chunk | None:
        """As of any reader; the chunk may be empty. None: nothing more is decided (yet)."""
        if self._scout is None:
            offset = self.next_offset
            chunk = super().read(limit_bytes)
            if chunk is None or not chunk.attributes & TRANSACTIONAL:
                return chunk
            self.put_back(chunk, 0, chunk.first_offset)
            self.next_offset = offset
            self._scout, self._is_behind = self._send_scout(), False
        return self._read_behind(self._scout, limit_bytes)

    def _send_scout(self) -> Scout:
        ahead = TailReader(self._fs, self.path, self._whose)
        ahead.seek(self.next_offset)
        return Scout(ahead)

    def _read_behind(self, scout: Scout, limit_bytes: int) -> Chunk | None:
        is_decided = scout.look_beyond(self.next_offset, limit_bytes)
        self.growing_path = scout.reader.growing_path
        if not is_decided:
            return None
        if not self._is_behind:
            super().seek(self.next_offset)  # it has the file open since before
            self._is_behind = True
        chunk = super().read(limit_bytes)
        return None if chunk is None else self._committed(scout, chunk)

    def _committed(self, scout: Scout, chunk: Chunk) -> Chunk:
        if chunk.next_offset > scout.stable:
            chunk = self._cut(chunk, scout.stable)
        scout.forget_below(chunk.first_offset)
        data = without_aborted(chunk.data, chunk.size, chunk.first_offset, scout.aborted)
        if data is chunk.data:
            return chunk
        return msgspec.structs.replace(chunk, data=data, size=len(data))

    def _cut(self, chunk: Chunk, stable: int) -> Chunk:
        """The batches that begin below an offset, which is where one begins."""
        offset, size = chunk.first_offset, 0
        for header in kernels.batch_headers(chunk.data, 0, chunk.size):
            if offset >= stable:
                break
            offset, size = offset + header[2], header[0] + header[1]
        self.put_back(chunk, size, offset)
        return msgspec.structs.replace(chunk, size=size, next_offset=offset)

    # --- places -----------------------------------------------------------------------------------

    def stable_end(self) -> int:
        """Up to there everything that is held is decided. Raises as `bounds`."""
        log = self._open_log()
        try:
            return log.last_stable_offset
        finally:
            log.close()

    def end_within(self, stop: int) -> int:
        """Not behind what is decided, once all before `stop` was looked at."""
        scout = self._scout
        return stop if scout is None or scout.known.offset < stop else min(stop, scout.stable)

    def has_more(self) -> bool:
        """Whether more is decided, or comes that may decide something."""
        scout = self._scout
        if scout is None:
            return super().has_more()
        return self.next_offset < scout.stable or scout.reader.has_more()

    def seek(self, offset: int) -> None:
        """Go on from `offset`. Raises OffsetNotHere."""
        self._recall()
        super().seek(offset)

    def seek_earliest(self) -> int:
        """Go on from the first offset that is not archived, and return it. Raises DiskFault."""
        self._recall()
        return super().seek_earliest()

    def recheck_segment(self) -> None:
        """As of any reader."""
        super().recheck_segment()
        if self._scout is not None:
            self._scout.reader.recheck_segment()

    def close(self) -> None:
        """Close the files."""
        self._recall()
        super().close()

    def _recall(self) -> None:
        if self._scout is not None:
            self._scout.reader.close()
            self._scout = None
