"""Which transactions are open at the end of a merged log, and which were aborted in it.

Both follow from the log's bytes (format.transactions). What was found is kept up to date by every
append, and caught up with where that was not done: after a start from the durable mark on, and in
readers of other processes with what the writer added. Aborted transactions are in a file beside the
segment that holds their marker, `.txnindex` in Kafka's format; the writer syncs it with the log.

Invariant: below the durable mark the files are whole; what they say above it is found again from
the log, and is the same. A write that finds no room is repeated: it stays pending until `store`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from operator import attrgetter

from samelog.format.batch import Bytes
from samelog.format.file_names import TXN_INDEX
from samelog.format.marks import LogCheckpoint
from samelog.format.transactions import (
    ABORTED_BYTES,
    Aborted,
    OpenTransactions,
    decode_aborted,
    encode_aborted,
)
from samelog.store.disk.batch_walk import BatchWalk
from samelog.store.disk.files import FileSystem, NoSuchFile
from samelog.store.merged.segment_chain import SegmentChain
from samelog.store.merged.segment_files import SegmentFiles

_LAST_OFFSET: Callable[[Aborted], int] = attrgetter("last_offset")
FILE_LIMIT_BYTES = 64 << 20
Store = Callable[[int, int, bytes], None]
"""Writes bytes of a segment's `.txnindex`: (base offset of the segment, position, bytes)."""


class TransactionIndex:
    """Of one merged log. `store` is None where somebody else writes."""

    def __init__(
        self, fs: FileSystem, chain: SegmentChain, segments: SegmentFiles, store: Store | None
    ) -> None:
        self._fs = fs
        self._chain = chain
        self._segments = segments
        self._store = store
        self._unstored: deque[tuple[int, int, bytes]] = deque()
        """Arguments of calls of `store` that are to come."""
        self._at = chain.start.base, 0
        """(segment, byte) up to which the log was looked at, unless that is its end."""
        self._first_found = chain.start.base
        """From this segment on, what was aborted was found from the log."""
        self._found: dict[int, list[Aborted]] = {}
        self._is_any: bool | None = None
        """Whether anything was aborted; None: nobody has looked."""

    def begin(self, durable: LogCheckpoint | None) -> None:
        """The files are whole up to there. None: nothing is known of them."""
        start = self._chain.start
        known = start if durable is None or durable.open is None else durable
        self._found.clear()
        self._unstored.clear()
        self._is_any = None
        self._at, self._first_found = (known.base, known.byte), known.base
        self._chain.transactions = OpenTransactions(known.offset, known.open or ())
        stored = self._read(known.base) if known.byte else []
        self._found[known.base] = [each for each in stored if each.last_offset < known.offset]

    # --- following the log ------------------------------------------------------------------------

    def took(self, base: int, data: Bytes) -> None:
        """Whole batches were appended to a segment, whose end is the log's."""
        for each in self._chain.transactions.take(data):
            self._add(base, each)
        growing = self._chain.growing
        self._at = growing.base_offset, growing.size

    def catch_up(self) -> OpenTransactions:
        """What is open at the end of the log. Raises LogFormatError."""
        known, end = self._chain.transactions, self._chain.growing.next_offset
        if known.offset == end:
            return known
        if known.offset > end or self._at[0] not in self._chain.bases:
            self.begin(None)
        for base in self._chain.bases[bisect_right(self._chain.bases, self._at[0]) - 1 :]:
            self._walk(base, self._at[1] if base == self._at[0] else 0)
        return self._chain.transactions

    def forget_found(self, first: int, stop: int) -> None:
        """Compacted segments are there now, in which nothing is left of what was aborted."""
        for base in [base for base in self._found if first <= base < stop]:
            del self._found[base]
        self._first_found = max(self._first_found, stop)

    def store(self) -> None:
        """Write to the files what was found since the last call. Raises DiskFault: the rest is
        written by the next call.
        """
        while self._unstored and self._store is not None:
            base, position, data = self._unstored[0]
            if base in self._chain.bases:
                self._store(base, position, data)
            self._unstored.popleft()

    def _walk(self, base: int, start: int) -> None:
        size, known = self._chain.size_of(base), self._chain.transactions
        if start < size:
            for piece in BatchWalk(self._segments.log(base), start, size, verify_crc=False):
                with memoryview(piece.data)[: piece.size] as data:
                    for each in known.take(data):
                        self._add(base, each)
                self._at = base, piece.position + piece.size
        self._at = base, size

    def _add(self, base: int, aborted: Aborted) -> None:
        entries = self._entries(base)
        entries.append(aborted)
        self._is_any = True
        if self._store is not None:
            position = ABORTED_BYTES * (len(entries) - 1)
            self._unstored.append((base, position, encode_aborted([aborted])))

    # --- asking -----------------------------------------------------------------------------------

    def aborted(self, first: int, stop: int, most: int | None = None) -> list[Aborted]:
        """Those with records in [first, stop), by the order of their markers: the first `most`."""
        self.catch_up()
        if self._is_any is None:
            self._is_any = any(map(self._entries, self._chain.bases))
        return list(islice(self._among(first, stop), most)) if self._is_any else []

    def _among(self, first: int, stop: int) -> Iterator[Aborted]:
        bases = self._chain.bases
        for base in bases[max(0, bisect_right(bases, first) - 1) :]:
            entries = self._entries(base)
            begin = bisect_left(entries, first, key=_LAST_OFFSET)
            for each in islice(entries, begin, None):
                if each.first_offset < stop:
                    yield each
                if each.last_stable_offset >= stop:
                    return

    def _entries(self, base: int) -> list[Aborted]:
        known = self._found.get(base)
        if known is None:
            known = self._found[base] = [] if base >= self._first_found else self._read(base)
        return known

    def _read(self, base: int) -> list[Aborted]:
        try:
            path = self._segments.path(base, TXN_INDEX)
            return decode_aborted(self._fs.read_file(path, FILE_LIMIT_BYTES))
        except NoSuchFile:
            return []
