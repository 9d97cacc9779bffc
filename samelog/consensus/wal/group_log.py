"""What counts of one replica's records in the shared log, and in which file each of them stands.

The same fold is done with each record that is written and with each one that is read at a start. So
a running member knows, without reading, which records would be missed if a file went.

Invariant: after any history of records this is what a scan of the files gives, as long as files go
oldest first, and none while `live` counts anything in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter

from samelog.consensus.errors import CorruptRecord
from samelog.consensus.types import ENTRY_OVERHEAD_BYTES, MAX_U32, Entry, HardState
from samelog.consensus.wal.codec import Base, Cut, ReplicaKey, SnapshotMark, WalRecord

FACT_BYTES = 64
"""What any record but an entry is taken to need."""
NOWHERE = 0
"""No file has this number."""
_STATE, _MARK, _BASE = range(3)
_INDEX = attrgetter("index")


class GroupLog:
    """One replica's log. `live`: file -> bytes of records that count in it, of all replicas."""

    __slots__ = (
        "_facts",
        "base",
        "count",
        "entries",
        "hard_state",
        "key",
        "live",
        "mark",
        "places",
    )

    def __init__(self, key: ReplicaKey, live: dict[int, int]) -> None:
        self.key = key
        self.live = live
        self.count = 0
        """Records that this replica ever had, modulo 2^32."""
        self.hard_state = HardState(0, None, 0)
        self.mark: SnapshotMark | None = None
        self.base = 0
        """The log begins behind this entry."""
        self.entries: list[Entry] = []
        self.places: list[int] = []
        """The file of each entry."""
        self._facts = [NOWHERE, NOWHERE, NOWHERE]
        """The files of hard state, mark and base."""

    def note(self, record: WalRecord, file: int) -> None:
        """The record stands in the file, behind all others."""
        self.count = (self.count + 1) & MAX_U32
        if type(record) is Entry:
            entries = self.entries
            if entries and record.index <= entries[-1].index:
                self._drop(self._position(record.index), len(entries))
            entries.append(record)
            self.places.append(file)
            self.live[file] += ENTRY_OVERHEAD_BYTES + len(record.data)
        elif type(record) is HardState:
            self.hard_state = record
            if self._facts[_STATE] != file:
                self._place(_STATE, file)
        else:
            self._note_rest(record, file)

    def _note_rest(self, record: WalRecord, file: int) -> None:
        if isinstance(record, SnapshotMark):
            self.mark = record
            self._place(_MARK, file)
        elif isinstance(record, Base):
            self.base = record.index
            self._place(_BASE, file)
            self._drop(0, self._position(record.index + 1))
        elif isinstance(record, Cut):
            self._drop(self._position(record.index), len(self.entries))

    def move(self, record: WalRecord, file: int) -> None:
        """A copy of what counts stands in the file: it replaces nothing. Raises CorruptRecord if it
        is no copy.
        """
        if not isinstance(record, Entry):
            self.note(record, file)
            return
        self.count = (self.count + 1) & MAX_U32
        entries, position = self.entries, self._position(record.index)
        if position < len(entries) and entries[position].index == record.index:
            if entries[position].term != record.term:
                raise CorruptRecord(f"entry {record.index} was moved, and is another one")
            self._drop(position, position + 1)
        entries.insert(position, record)
        self.places.insert(position, file)
        self.live[file] += ENTRY_OVERHEAD_BYTES + len(record.data)

    def _position(self, index: int) -> int:
        return bisect_left(self.entries, index, key=_INDEX)

    def _drop(self, start: int, stop: int) -> None:
        for entry, file in zip(self.entries[start:stop], self.places[start:stop], strict=True):
            self.live[file] -= ENTRY_OVERHEAD_BYTES + len(entry.data)
        del self.entries[start:stop]
        del self.places[start:stop]

    def _place(self, fact: int, file: int) -> None:
        known = self._facts[fact]
        if known != NOWHERE:
            self.live[known] -= FACT_BYTES
        self._facts[fact] = file
        self.live[file] += FACT_BYTES

    def let_go(self) -> None:
        """Nothing of it counts any more: the replica has ended."""
        self._drop(0, len(self.entries))
        for place in self._facts:
            if place != NOWHERE:
                self.live[place] -= FACT_BYTES
        self._facts = [NOWHERE, NOWHERE, NOWHERE]

    # --- questions --------------------------------------------------------------------------------

    def holds(self, index: int, term: int) -> bool:
        """Whether the log has this entry, or begins behind it."""
        if index <= self.base:
            return True
        position = self._position(index)
        found = self.entries[position : position + 1]
        return bool(found) and (found[0].index, found[0].term) == (index, term)

    def installing(self, mark: SnapshotMark) -> list[WalRecord]:
        """What to write when a snapshot is durable: it takes the place of a log that has not its
        last entry.
        """
        if self.holds(mark.last_index, mark.last_term):
            return [mark]
        return [Cut(self.base + 1), Base(mark.last_index), mark]

    def held_in(self, file: int, limit_bytes: int) -> list[WalRecord]:
        """Records that count and stand in the file; about so many bytes of them, and one at least
        if there are any.
        """
        found: list[WalRecord] = []
        for entry, place in zip(self.entries, self.places, strict=True):
            if place == file:
                if limit_bytes <= 0:
                    return found
                found.append(entry)
                limit_bytes -= ENTRY_OVERHEAD_BYTES + len(entry.data)
        facts = (self.hard_state, self.mark, Base(self.base))
        held = zip(facts, self._facts, strict=True)
        found += [fact for fact, place in held if place == file and fact is not None]
        return found

    def needs(self, file: int) -> bool:
        """Whether anything that counts stands in the file."""
        return file in self._facts or file in self.places

    def check(self) -> None:
        """Raises CorruptRecord if an entry is missing."""
        expected = self.base + 1
        for entry in self.entries:
            if entry.index != expected:
                text = f"entries {expected} to {entry.index - 1} are missing from the log"
                raise CorruptRecord(text)
            expected += 1


def carried_bytes(records: Iterable[WalRecord]) -> int:
    """What these records are taken to need in a file."""
    return sum(
        ENTRY_OVERHEAD_BYTES + len(record.data) if isinstance(record, Entry) else FACT_BYTES
        for record in records
    )
