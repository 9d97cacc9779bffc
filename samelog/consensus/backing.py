"""Entries that name bytes outside of the log, and where those bytes are (docs/raft.md, "Entries and
their bytes").

An entry is *backed* on a node when what it names is there. Its driver says so; a core that is told
nothing takes every entry for backed. What a leader sent and a follower cannot take yet is *held
back*: it waits here, in order, for its bytes, or for the word that it is committed. Then it is
taken *bare*.

Invariant: a follower takes no entry above the commit index that is not backed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from samelog.consensus.log import RaftLog
from samelog.consensus.messages import Append
from samelog.consensus.types import Entry

HELD_ENTRIES = 256
"""The leader sends what comes behind them again."""


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
