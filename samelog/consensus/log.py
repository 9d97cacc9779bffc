"""The replicated log of one node, as far as it is not compacted; and what has to wait before it.

Entries base_index + 1 .. last_index are held in memory; (base_index, base_term) is the place where
the log was cut.

An entry may name bytes outside of the log (docs/raft.md, "Entries and their bytes"). It is *backed*
on a node when these are there. The driver says so; a core that is told nothing takes every entry
for backed. What a leader sent and a follower cannot take yet is *held back*: it waits, in order,
for its bytes, or for the word that it is committed. Then it is taken *bare*.

Invariant: indexes are dense, terms never decrease, and last_index >= base_index. A follower takes
no entry above the commit index that is not backed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

import msgspec

from samelog.consensus.messages import Append
from samelog.consensus.types import ENTRY_OVERHEAD_BYTES, Entry
from samelog.format.errors import InvariantError

HELD_ENTRIES = 256
"""The leader sends what comes behind them again."""


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
        self._entries += entries
        self.last_index, self.last_term = entries[-1].index, entries[-1].term

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

    def is_long(self, index: int, limit_bytes: int) -> bool:
        """Whether the entry alone is more than `limit_bytes`."""
        data = self._entries[index - self.base_index - 1].data
        return len(data) + ENTRY_OVERHEAD_BYTES > limit_bytes

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


class Backing:
    """Of one node: who tells which entries are backed, and what is held back."""

    __slots__ = ("held", "is_backed", "since")

    def __init__(self) -> None:
        self.is_backed: Callable[[Entry], bool] = _always
        self.held: Append | None = None
        """From the first entry on that could not be taken."""
        self.since = 0.0
        """When that one came."""

    def unbacked(self, entries: Sequence[Entry]) -> Entry | None:
        """The first of these that is not backed."""
        is_backed = self.is_backed
        for entry in entries:
            if entry.data and not is_backed(entry):
                return entry
        return None

    def count(self, log: RaftLog, entries: Sequence[Entry], commit: int) -> int:
        """How many of these a follower may take: what is committed it takes bare, and what it has
        it has taken before.
        """
        fresh = [e for e in entries if e.index > commit and log.term_at(e.index) != e.term]
        found = self.unbacked(fresh)
        return len(entries) if found is None else found.index - entries[0].index

    def joined(self, append: Append) -> Append | None:
        """What is held back and what came now, as one; None if it has to be looked at by itself. A
        later attempt of the leader says again what is held back.
        """
        held = self.held
        if held is None:
            return None
        if append.term != held.term or append.stream > held.stream:
            self.held = None
            return None
        end = held.prev_index + len(held.entries)
        if append.stream != held.stream or not held.prev_index <= append.prev_index <= end:
            return None
        more = append.entries[end - append.prev_index :] if len(held.entries) < HELD_ENTRIES else ()
        return with_commit(held, append.commit, more)

    def hold(self, rest: Append | None, now: float) -> None:
        """This is what waits now."""
        if rest is not None and (self.held is None or self.held.prev_index != rest.prev_index):
            self.since = now
        self.held = rest


def with_commit(held: Append, commit: int, more: Sequence[Entry] = ()) -> Append:
    """The same, with more entries, from a leader that has committed so far."""
    entries, commit = (*held.entries, *more), max(held.commit, commit)
    return msgspec.structs.replace(held, entries=entries, commit=commit)


def _always(entry: Entry) -> bool:
    return True
