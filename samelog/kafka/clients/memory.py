"""How much the connections of one listener hold: requests that came, answers that did not leave.

Beyond the limit nothing more is read from any client, and no records are read for one, until a
quarter of the limit is free again; who holds most can be told to go.

Invariant: the total is the sum of what each holder said last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

HolderT = TypeVar("HolderT", bound=Hashable)


class Memory(Generic[HolderT]):
    """`limit_bytes` may be passed by what is under way when it is reached."""

    def __init__(self, limit_bytes: int, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when memory gets short, and when it is no longer."""
        self._limit = limit_bytes
        self._changed = changed
        self._held: dict[HolderT, int] = {}
        self.total = 0
        self.is_short = False
        self.spells = 0
        """How often it has got short."""
        self._spells_seen = 0
        """By `stays_short`."""

    @property
    def left(self) -> int:
        """Bytes up to the limit; 0 while memory is short."""
        return 0 if self.is_short else max(0, self._limit - self.total)

    def hold(self, holder: HolderT, size: int) -> None:
        """Set how many bytes a holder has now; 0 forgets the holder."""
        self.total += size - self._held.pop(holder, 0)
        if size:
            self._held[holder] = size
        was_short = self.is_short
        self.is_short = self.total > (self._limit * 3 // 4 if was_short else self._limit)
        if self.is_short != was_short:
            self.spells += self.is_short
            self._changed()

    def stays_short(self) -> bool:
        """Whether memory has been short ever since this was asked last."""
        stays = self.is_short and self.spells == self._spells_seen
        self._spells_seen = self.spells
        return stays

    def largest(self) -> HolderT | None:
        """The holder with the most bytes."""
        return max(self._held, key=self._held.__getitem__, default=None)
