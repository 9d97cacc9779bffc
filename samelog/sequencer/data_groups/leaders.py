"""Who leads each data group, as far as a member without its replica has heard.

Invariant: the leader known of a group is that of the newest term reported.
"""

from __future__ import annotations

from collections.abc import Container


class KnownLeaders:
    """As one member knows them."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}
        """Group -> (term, member)."""
        self._new: set[int] = set()
        """Groups that have another one than `take` has returned last."""

    def note(self, group: int, term: int, member: int) -> bool:
        """A member leads a group, or did. Returns whether the term is news."""
        if term <= self._known.get(group, (-1, 0))[0]:
            return False
        self._known[group] = term, member
        self._new.add(group)
        return True

    def get(self, group: int) -> tuple[int, int] | None:
        """(term, member) of who leads a group."""
        return self._known.get(group)

    def take(self, groups: Container[int]) -> dict[int, int]:
        """Those of these groups that have another leader than at the last call, and which."""
        found = {number for number in self._new if number in groups}
        self._new -= found
        return {number: self._known[number][1] for number in found}

    def forget(self, group: int) -> None:
        """The group is gone."""
        self._known.pop(group, None)
        self._new.discard(group)
