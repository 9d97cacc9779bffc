"""How long to wait before trying again: doubling, bounded, jittered to spread clients out.

Invariant: every delay is in [half of, all of] min(maximum_s, base_s * 2 ** tries).
"""

from __future__ import annotations

from random import Random


class Backoff:
    """The delays of one thing that is retried; randomness is passed in, for replay."""

    def __init__(self, random: Random, *, base_s: float = 0.05, maximum_s: float = 2.0) -> None:
        if not 0 < base_s <= maximum_s:
            raise ValueError(f"need 0 < base_s <= maximum_s, not {base_s} and {maximum_s}")
        self._random = random
        self._base_s = base_s
        self._maximum_s = maximum_s
        self._ceiling_s = base_s

    def next_delay_s(self) -> float:
        """The delay before the next try; grows with every call until `reset`."""
        ceiling_s = self._ceiling_s
        self._ceiling_s = min(self._maximum_s, ceiling_s * 2)
        return ceiling_s * (0.5 + 0.5 * self._random.random())

    def reset(self) -> None:
        """Note a success: the next failure starts from the shortest delay."""
        self._ceiling_s = self._base_s
