"""The members of a site agree before one of them is promoted (docs/sites.md, S3). Pure.

Two operators may each ask another member of the same site to go on, at the same moment. So a member
asks the others of its site first, and promises to itself what they promise to it: to agree to
nobody else for a while. Who has more refuses.

Invariant: a member agrees to one promotion at a time, its own included, and to none of a member
that has less (rule sites.11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

PROMISED_S = 30.0
"""Longer than a promotion takes from the question to the new life."""


class Agreement:
    """One member's part. Times are in seconds of one clock."""

    def __init__(self) -> None:
        self._promised_to = -1
        self._until = float("-inf")
        self._promotion = ""
        """The one that this member asks the others about."""
        self._waits: set[int] = set()
        self._on_told: Callable[[], None] = lambda: None
        self.refused = ""
        """Why another member does not agree to that; empty: none has refused."""

    def promise(self, to: int, now: float) -> bool:
        """Agree to nobody else for a while; False: somebody else has that promise."""
        if now < self._until and self._promised_to != to:
            return False
        self._promised_to, self._until = to, now + PROMISED_S
        return True

    def ask(
        self, promotion: str, others: Iterable[int], on_told: Callable[[], None] = lambda: None
    ) -> None:
        """This member asks these others, having promised to itself; `on_told` is called with each
        answer.
        """
        self._promotion, self._waits, self.refused = promotion, set(others), ""
        self._on_told = on_told

    def told(self, node: int, promotion: str, refused: str) -> None:
        """Another member has answered."""
        if promotion != self._promotion or node not in self._waits:
            return
        self._waits.discard(node)
        self.refused = self.refused or refused
        self._on_told()

    @property
    def is_over(self) -> bool:
        """Whether all have agreed, or one has refused."""
        return not self._waits or bool(self.refused)

    @property
    def silent(self) -> list[int]:
        """Who has not answered yet."""
        return sorted(self._waits)
