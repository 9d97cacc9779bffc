"""Where an application is in one partition: what it was handed, and what it has dealt with.

Records go out as objects or as Arrow rows; both move the same position, so an application may mix
them. A record counts as dealt with once the application asks for the next one.

Invariant: done <= position <= what was read; no record between them is skipped or handed out twice,
but after a seek. done < position only while the application has a record between them (212).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from samelog.format import _kernels as kernels
from samelog.format.arrow import to_arrow
from samelog.format.compression import decompress
from samelog.subscriber.tail_reader import Chunk, TailReader

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BYTES = 256 << 10
ARROW_CHUNK_BYTES = 4 << 20
"""What fits into a processor's cache while it is read, checked and taken apart."""

_offset_of = attrgetter("offset")
_NO_RECORDS: Iterator[kernels.Record] = iter(())


class Cursor:
    """One partition of a subscriber. Not thread-safe."""

    def __init__(self, reader: TailReader, stop: int | None = None) -> None:
        self.reader = reader
        self.stop = stop
        """The offset at which reading ends; None: never."""
        self.position = reader.next_offset
        """The next offset to hand out."""
        self.done = reader.next_offset
        """Offsets below are dealt with."""
        self.chunk: Chunk | None = None
        """What was read and not wholly handed out."""
        self._decoded: list[kernels.Record] = []
        self._records = _NO_RECORDS
        self._table: Any = None
        self._table_position = -1

    @property
    def is_finished(self) -> bool:
        """Whether everything up to `stop` was handed out."""
        return self.stop is not None and self.position >= self.reader.end_within(self.stop)

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left to hand out now. May be asked from any thread."""
        is_handed_out = self.chunk is None or self.position >= self.chunk.next_offset
        return self.is_finished or (is_handed_out and not self.reader.has_more())

    def seek(self, offset: int) -> None:
        """Go on from `offset`; what lies before counts as dealt with. Raises OffsetOutOfRange."""
        self.reader.seek(offset)
        self._drop_chunk()
        self.position = self.done = offset

    def jump(self, offset: int) -> None:
        """Go on from `offset`, as what lies between is not there; what was handed out and not dealt
        with stays so. Raises OffsetOutOfRange.
        """
        done, is_settled = self.done, self.done == self.position
        self.seek(offset)
        self.done = offset if is_settled else min(done, offset)

    def put_back(self, offset: int) -> None:
        """Hand out `offset` again: it was not dealt with. Raises OffsetOutOfRange."""
        done = self.done
        self.seek(offset)
        self.done = done

    def leave(self) -> None:
        """Hand out no more records, and close the reader."""
        self._drop_chunk()
        self.reader.close()

    def fill(self, limit_bytes: int) -> bool:
        """See to it that a chunk is there; whether one is. Raises as `TailReader.read`."""
        if self.stop is not None and self.is_finished:
            return False
        if self.chunk is None:
            self.chunk = self.reader.read(limit_bytes)
        return self.chunk is not None

    def finish(self, chunk: Chunk | None, *, hands_out: bool = False) -> None:
        """Everything in the chunk was handed out, or is now (`hands_out`); nothing if it is not the
        present one any more. Offsets without a record need nobody to deal with them.
        """
        if chunk is not None and chunk is self.chunk:
            end = chunk.next_offset if self.stop is None else min(chunk.next_offset, self.stop)
            self._drop_chunk()
            is_dealt_with = self.done == self.position and not hands_out
            self.position = max(self.position, end)
            if is_dealt_with:
                self.done = self.position

    def _drop_chunk(self) -> None:
        self._decoded.clear()  # ends the iterators that somebody holds
        self._decoded, self._records = [], _NO_RECORDS
        self.chunk, self._table = None, None

    # --- records -------------------------------------------------------------------------------

    def records(self) -> Iterator[kernels.Record]:
        """What is left of the chunk; whoever takes a record moves `position` behind it.

        It is one iterator for all who ask, and ends early when the chunk is dropped.
        """
        if self.chunk is not None and not self._decoded:
            self._decoded = self._decode(self.chunk)
            self._records = iter(self._decoded)
        return self._records

    def upcoming(self) -> list[kernels.Record]:
        """What is left of the chunk to hand out, without taking it."""
        self.records()
        first = bisect_left(self._decoded, self.position, key=_offset_of)
        return self._decoded[first:]

    def _decode(self, chunk: Chunk) -> list[kernels.Record]:
        reader = self.reader
        records = kernels.decode_records(
            chunk.data,
            0,
            chunk.size,
            reader.topic,
            reader.partition,
            decompress,
            verify_crc=False,  # the reader has
        )
        if chunk.first_offset >= self.position and (self.stop is None or self._is_whole(chunk)):
            return records
        stop = chunk.next_offset if self.stop is None else self.stop
        return [record for record in records if self.position <= record.offset < stop]

    def _is_whole(self, chunk: Chunk) -> bool:
        return self.stop is None or chunk.next_offset <= self.stop

    def next_records(self, count: int) -> list[kernels.Record]:
        """Up to `count` records of the chunk; the position moves behind them."""
        taken = list(islice(self.records(), count))
        if taken:
            self.position = taken[-1].offset + 1
        if len(taken) < count:
            self.finish(self.chunk)
        return taken

    # --- Arrow ---------------------------------------------------------------------------------

    def take_table(self, count: int) -> pa.Table | None:
        """Up to `count` rows of the chunk; None when nothing is left of it."""
        chunk = self.chunk
        if chunk is None:
            return None
        if self._table is None or self._table_position != self.position:
            self._table = self._rest_of(chunk)
        if (rest := self._table).num_rows <= count:
            self.finish(chunk, hands_out=rest.num_rows > 0)
            return rest if rest.num_rows else None
        taken, self._table = rest.slice(0, count), rest.slice(count)
        self.position = self._table_position = taken["offset"][-1].as_py() + 1
        self._decoded.clear()
        return taken

    def _rest_of(self, chunk: Chunk) -> Any:
        reader = self.reader
        table = to_arrow(
            chunk.data,
            0,
            chunk.size,
            topic=reader.topic,
            partition=reader.partition,
            verify_crc=False,  # the reader has
        )
        if chunk.first_offset >= self.position and self._is_whole(chunk):
            return table
        from pyarrow import compute

        offsets = table["offset"]
        first = compute.sum(compute.less(offsets, self.position)).as_py() or 0
        if self._is_whole(chunk):
            return table.slice(first)
        return table.slice(first, compute.sum(compute.less(offsets, self.stop)).as_py() - first)
