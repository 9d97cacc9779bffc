"""The one true merged log of a partition, as the first node to execute each byte wrote it.

Invariant: it only grows; every record in it was published, once, and each session's are in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from samelog.format import _kernels as kernels
from samelog.format.batch import HEADER_BYTES, Attribute
from samelog.format.compression import decompress
from samelog.format.transactions import COMMIT, is_marker
from tests.cluster_sim.compaction import CompactedLog
from tests.cluster_sim.first_keys import FirstKeys
from tests.cluster_sim.violation import Violation

TYPE_AT = HEADER_BYTES + 8
"""Of a marker: the low byte of what it says."""


class End(NamedTuple):
    """Where a batch ends: byte `byte` of the segment `base`."""

    base: int
    byte: int


@dataclass(slots=True)
class CanonicalLog:
    """One partition of one topic id."""

    topic: str
    partition: int
    is_published: Callable[[str, int, str, int], bool]
    """(session, number, topic, partition): whether a publisher has written that there."""
    segments: dict[int, bytearray] = field(default_factory=dict)
    next_offset: int = 0
    ends: dict[tuple[str, int], End] = field(default_factory=dict)
    """(session, number) -> where its batch ends."""
    last: dict[str, int] = field(default_factory=dict)
    open: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    """Producer id -> (session, number) of what is not decided."""
    first_open: dict[int, int] = field(default_factory=dict)
    committed: set[tuple[str, int]] = field(default_factory=set)
    """Of transactions."""
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer id, first and last offset of each transaction."""
    batches: dict[int, list[int]] = field(default_factory=dict)
    """Producer id -> first offset of each batch of its transactions."""
    archived: int = 0
    """Segments below are archived: Raft has said so."""
    keyed: list[tuple[int, bytes | None, bool]] = field(default_factory=list)
    """Offset and key of each record, and whether it is a tombstone."""
    compacted: CompactedLog = field(default_factory=CompactedLog)
    first: FirstKeys | None = None
    """If keys count once."""
    accepts: Callable[[str, int], None] = lambda session, number: None
    """Called with every record: raises Violation for one that belongs to another log."""

    def behind(
        self, start: int, transactions: Iterable[tuple[int, int, int]]
    ) -> list[tuple[int, int, int]]:
        """Return what transactions are to a reader that begins at `start`: each from its first
        batch there on. A copy that begins there knows no more.
        """
        found = []
        for producer, first, last in transactions:
            offsets = self.batches.get(producer, ())
            there = [each for each in offsets if max(first, start) <= each <= last]
            if there:
                found.append((producer, there[0], last))
        return found

    def end_of(self, session: str, number: int) -> End | None:
        """Where a record's batch ends, or that of another record of its key."""
        end = self.ends.get((session, number))
        return end if end or self.first is None else self.first.counterpart(session, number)

    def compare(self, who: str, base: int, start: int, data: memoryview) -> int:
        """Somebody holds these bytes: they must be the known ones. How many are known."""
        known = self.segments.get(base)
        size = self.count_known(base, start, len(data))
        if known is not None and size and known[start : start + size] != data[:size]:
            at = next(i for i in range(size) if known[start + i] != data[i])
            raise Violation(
                "merged logs differ",
                f"{who} has other bytes in {self.topic}-{self.partition} at {base}:{start + at}",
            )
        return size

    def count_known(self, base: int, start: int, size: int) -> int:
        """How many of `size` bytes from byte `start` of a segment on are known."""
        known = self.segments.get(base)
        return 0 if known is None else max(0, min(len(known) - start, size))

    def extend(self, who: str, base: int, data: bytes) -> None:
        """Take up bytes that nobody had before, at the end of a segment."""
        known = self.segments.get(base)
        if known is None:
            if base != self.next_offset:
                raise Violation("offsets dense", f"{who} begins a segment at {base}")
            known = self.segments[base] = bytearray()
        elif base != max(self.segments):
            raise Violation("merged logs differ", f"{who} goes on in the sealed segment {base}")
        at = len(known)
        known += data
        for header in kernels.batch_headers(known, at, len(known)):
            self._take_batch(who, base, known, header)

    def _take_batch(self, who: str, base: int, known: bytearray, header: tuple[int, ...]) -> None:
        start, size = header[0], header[1]
        end = End(base, start + size)
        if is_marker(header[3]):
            self._take_marker(who, header[6], is_commit=known[start + TYPE_AT] == COMMIT)
            return
        if header[3] & Attribute.TRANSACTIONAL:
            self.batches.setdefault(header[6], []).append(self.next_offset)
            self.open.setdefault(header[6], [])
            self.first_open.setdefault(header[6], self.next_offset)
        for record in kernels.decode_records(
            known, start, start + size, self.topic, self.partition, decompress
        ):
            if record.offset != self.next_offset:
                raise Violation(
                    "offsets dense", f"{who} has {record.offset}, the next is {self.next_offset}"
                )
            self.next_offset += 1
            one = self._take_record(who, said_of(record), end)
            if self.first is not None:
                self.first.take(who, record.key, record.offset, end)
            self.keyed.append((record.offset, record.key, record.value is None))
            if header[3] & Attribute.TRANSACTIONAL:
                self.open[header[6]].append(one)

    def _take_marker(self, who: str, producer_id: int, *, is_commit: bool) -> None:
        """A transaction ends. It may have no records here."""
        found = self.open.pop(producer_id, [])
        first = self.first_open.pop(producer_id, self.next_offset)
        if found and is_commit:
            self.committed.update(found)
        elif found:
            self.aborted.append((producer_id, first, self.next_offset))
        self.next_offset += 1

    def _take_record(self, who: str, value: bytes, end: End) -> tuple[str, int]:
        session, number = parse_value(value)
        if not self.is_published(session, number, self.topic, self.partition):
            raise Violation("nothing invented", f"{who} merged {value[:60]!r}, never published")
        if number <= self.last.get(session, -1):
            kind = "doubled" if (session, number) in self.ends else "out of order"
            raise Violation(
                "once and in order",
                f"{who}: {session} {number} is {kind}, behind {self.last[session]}",
            )
        self.accepts(session, number)
        self.last[session] = number
        self.ends[session, number] = end
        return session, number


def said_of(record: kernels.Record) -> bytes:
    """What says whose a record is: its value, or the header of a tombstone."""
    return record.value if record.value is not None else record.headers[0][1] or b""


def make_value(session: str, number: int, padding: int) -> bytes:
    """A record that says whose it is."""
    text = b"%s|%d|" % (session.encode(), number)
    body = (text * (1 + padding // len(text)))[:padding]
    return b"%s%08x|%s" % (text, kernels.crc32c(body, number), body)


def parse_value(value: bytes) -> tuple[str, int]:
    """Whose a record is. Raises Violation for one that was damaged."""
    try:
        session, number, checksum, body = value.split(b"|", 3)
        if kernels.crc32c(body, int(number)) == int(checksum, 16):
            return session.decode(), int(number)
    except ValueError:
        pass
    raise Violation("nothing invented", f"a record reads {value[:60]!r}")
