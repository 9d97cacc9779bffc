"""Entries that a leader has proposed and not seen applied, and the state as it will be behind them.

Invariant: a speculative value lasts until the last entry in flight that changes it is applied, and
no longer (rule merge.16).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from samelog.sequencer.merge.drafts import PlannerLimits

K = TypeVar("K")
V = TypeVar("V")


class Speculation(dict[K, V]):
    """Values of the replicated state as they will be once the entries in flight are applied."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[K, int] = {}
        """How many changes of each key are in flight."""

    def clear(self) -> None:
        """Drop every value, with the entries that it came from."""
        super().clear()
        self.entries.clear()


SpeculativeKey = tuple[Speculation[Any, Any], Hashable]
"""A value that an entry changes: a speculation and its key."""


@dataclass(slots=True)
class MemberFlight:
    """Bytes that the entries in flight of all groups of a member name, and their limit."""

    limit_bytes: int = 64 << 20
    bytes: int = 0


class InFlight:
    """The entries of one group.

    A group without an entry in flight may always propose one, so that no group waits for another.
    """

    def __init__(self, limits: PlannerLimits, member: MemberFlight) -> None:
        self._limits = limits
        self._member = member
        self._entries: dict[int, tuple[int, list[SpeculativeKey]]] = {}
        """By index: the bytes that an entry names, and what it changes."""
        self._bytes = 0
        self.given_up: set[int] = set()
        """Entries that were planned for logs that no longer exist."""
        self.is_draining = False
        """Whether nothing is planned until all entries are applied."""

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def indexes(self) -> Iterable[int]:
        """The entries, by index."""
        return self._entries.keys()

    @property
    def has_room(self) -> bool:
        """Whether another entry, as large as an entry may be, fits."""
        if self.is_draining:
            return False
        if not self._entries:
            return True
        limits, member = self._limits, self._member
        return (
            len(self._entries) < limits.in_flight_entries
            and self._bytes + limits.entry_bytes <= limits.in_flight_bytes
            and member.bytes + limits.entry_bytes <= member.limit_bytes
        )

    def add(self, index: int, size: int, changes: list[SpeculativeKey]) -> None:
        """Expect an entry that names so many bytes and makes these changes."""
        self._entries[index] = size, changes
        self._bytes += size
        self._member.bytes += size
        for known, key in changes:
            known.entries[key] = known.entries.get(key, 0) + 1

    def applied(self, index: int) -> bool:
        """End the speculation that only this entry upheld; return whether it was in flight."""
        if self.given_up:
            self.given_up.discard(index)
        entry = self._entries.pop(index, None)
        if entry is None:
            return False
        size, changes = entry
        self._bytes -= size
        self._member.bytes -= size
        for known, key in changes:
            known.entries[key] -= 1
            if not known.entries[key]:
                del known.entries[key]
                known.pop(key, None)
        return True

    def clear(self) -> None:
        """Expect no entry any more."""
        self._member.bytes -= self._bytes
        self._bytes = 0
        self._entries.clear()
        self.given_up.clear()
        self.is_draining = False
