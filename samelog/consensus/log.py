"""The replicated log of one node, as far as it is not compacted.

Entries base_index + 1 .. last_index are held in memory; (base_index, base_term) is the place where
the log was cut.

Invariant: indexes are dense, terms never decrease, and last_index >= base_index.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from samelog.consensus.types import ENTRY_OVERHEAD_BYTES, Entry
from samelog.format.errors import InvariantError


def _term(entry: Entry) -> int:
    return entry.term


class RaftLog:
    """The entries, and the questions the algorithm asks about them."""

    __slots__ = ("_entries", "base_index", "base_term", "last_index", "last_term")

    def __init__(self, base_index: int, base_term: int, entries: Sequence[Entry]) -> None:
        self.base_index = base_index
        self.base_term = base_term
        self.last_index = base_index
        self.last_term = base_term
        self._entries: list[Entry] = []
        for entry in entries:
            self.append((entry,))

    def term_at(self, index: int) -> int | None:
        """The term of an entry; None if it is compacted or does not exist."""
        position = index - self.base_index - 1
        if position >= 0:
            return self._entries[position].term if index <= self.last_index else None
        return self.base_term if position == -1 else None

    def matches(self, index: int, term: int) -> bool:
        """Whether the entry (index, term) is known to be in this log."""
        return self.term_at(index) == term

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries, dense among themselves, behind the last one.

        Raises InvariantError if they don't follow it.
        """
        if not entries:
            return
        first = entries[0]
        if first.index != self.last_index + 1 or first.term < self.last_term:
            raise InvariantError(
                f"entry ({first.index}, {first.term}) cannot follow "
                f"({self.last_index}, {self.last_term})"
            )
        self._entries.extend(entries)
        self.last_index += len(entries)
        self.last_term = entries[-1].term

    def cut_from(self, index: int) -> None:
        """Forget the entries at and above `index`."""
        del self._entries[index - self.base_index - 1 :]
        self.last_index = index - 1
        self.last_term = self._entries[-1].term if self._entries else self.base_term

    def compact(self, index: int) -> None:
        """Forget the entries up to `index`, which becomes the base."""
        term = self.term_at(index)
        if term is None:
            raise InvariantError(
                f"cannot cut the log behind {index}: it holds {self.base_index}..{self.last_index}"
            )
        del self._entries[: index - self.base_index]
        self.base_index, self.base_term = index, term

    def reset(self, base_index: int, base_term: int) -> None:
        """Forget everything: the log begins after (base_index, base_term), held by a snapshot."""
        self._entries.clear()
        self.base_index, self.base_term = base_index, base_term
        self.last_index, self.last_term = base_index, base_term

    def entries(self, start: int, stop: int) -> list[Entry]:
        """Entries start <= index < stop, all of which must be in the log."""
        first = self.base_index + 1
        return self._entries[start - first : stop - first]

    def entries_up_to_bytes(self, start: int, limit_bytes: int) -> tuple[Entry, ...]:
        """Entries from `start` on, as many as fit into `limit_bytes`, but at least one."""
        if start == self.last_index:
            return (self._entries[-1],)
        entries = self._entries[start - self.base_index - 1 :]
        size = 0
        for count, entry in enumerate(entries):
            size += len(entry.data) + ENTRY_OVERHEAD_BYTES
            if size > limit_bytes and count:
                return tuple(entries[:count])
        return tuple(entries)

    def newest_up_to_term(self, index: int, term: int) -> tuple[int, int]:
        """The newest entry (its index and term) at or below `index` with a term of at most `term`.

        Used on both sides to step over whole terms when logs conflict. Ends at the base, which is
        committed.
        """
        stop = max(0, min(index, self.last_index) - self.base_index)
        position = bisect_right(self._entries, term, 0, stop, key=_term)
        if position == 0:
            return self.base_index, self.base_term
        return self.base_index + position, self._entries[position - 1].term

    def first_conflict(self, entries: Sequence[Entry]) -> int | None:
        """The index of the first of these entries that is not in the log; None if all are."""
        for entry in entries:
            if self.term_at(entry.index) != entry.term:
                return entry.index
        return None
