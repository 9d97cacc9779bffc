"""How long a node waits for its leader's word before it campaigns: longer while its own loop is
late.

A node that gets too little processor time hears a leader late that lives. If it campaigned by the
configured timeout all the same, a starved cluster would elect without end and commit nothing. So a
node waits for a multiple of the delays that it measures of itself. Nothing else adapts: how long
others take a leader to live, and how long one leads without a majority's answers, is as
configured, so that no two nodes answer differently.

Invariant: between the configured timeout and MOST times as long, times `weight`; back at it FALL_S
after the last delay.
"""

from __future__ import annotations

from collections.abc import Callable

DELAYS = 5
"""A leader's word is late by its own delay and by ours, and each may be longer than the last."""
SPREAD = 0.4
"""By so much of itself a wait is longer by chance. A silent leader is missed by as little as that
allows; two nodes campaign together, and neither is elected, if their waits end within a round trip.
"""
MOST = 10
FALL_S = 25.0


class Patience:
    """One node's."""

    __slots__ = (
        "_factor",
        "_is_excused",
        "_measured_at",
        "_timeout_s",
        "heard",
        "rests",
        "seconds",
        "wait_s",
        "weight",
    )

    def __init__(self, timeout_s: float, now: float) -> None:
        """`timeout_s`: as configured."""
        self._timeout_s = timeout_s
        self._measured_at = now
        self._is_excused = False
        self._factor = 1.0
        self.weight = 1.0
        """Higher on a node that should not lead while others can."""
        self.seconds = self.wait_s = timeout_s
        self.heard: Callable[[], float] | None = None
        """When the member that leads was last heard of; None: this node never rests."""
        self.rests = False
        """Its group is quiet: it has no timer (quiet.py)."""

    def draw(self, chance: float) -> None:
        """Wait for another time from now on (`wait_s`): nodes are seldom to campaign together.
        `chance`: from 0 to 1.
        """
        self._factor = self.weight * (1.0 + SPREAD * chance)
        self.wait_s = self.seconds * self._factor

    def weigh(self, weight: float) -> None:
        """Wait so many times as long as others from now on."""
        if weight != self.weight:
            self._factor *= weight / self.weight
            self.weight = weight
            self.wait_s = self.seconds * self._factor

    def delayed(self, by_s: float, now: float) -> float:
        """The node's loop ran so late: by how much its wait has grown, or else 0."""
        before, timeout_s = self.wait_s, self._timeout_s
        fallen = self.seconds - (now - self._measured_at) * timeout_s * (MOST - 1) / FALL_S
        self._measured_at = now
        self.seconds = max(timeout_s, fallen, min(MOST * timeout_s, DELAYS * by_s))
        self.wait_s = self.seconds * self._factor
        return max(0.0, self.wait_s - before)

    def excuses(self, is_late: bool) -> bool:
        """Whether a tick judges nobody: it is late, and the one before it was not excused."""
        self._is_excused = is_late and not self._is_excused
        return self._is_excused
