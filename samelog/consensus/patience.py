"""How long a node waits for its leader's word before it campaigns: longer while its own loop is
late.

A node that gets too little processor time hears a leader late that lives. If it campaigned by the
configured timeout all the same, a starved cluster would elect without end and commit nothing. So a
node waits for a multiple of the delays that it measures of itself. Nothing else adapts: how long
others take a leader to live, and how long one leads without a majority's answers, is as
configured, so that no two nodes answer differently.

Invariant: between the configured timeout and MOST times as long; back at it FALL_S after the last
delay.
"""

from __future__ import annotations

DELAYS = 5
"""A leader's word is late by its own delay and by ours, and each may be longer than the last."""
MOST = 10
FALL_S = 25.0


class Patience:
    """One node's."""

    __slots__ = ("_measured_at", "_timeout_s", "seconds")

    def __init__(self, timeout_s: float, now: float) -> None:
        """`timeout_s`: as configured."""
        self._timeout_s = timeout_s
        self._measured_at = now
        self.seconds = timeout_s

    def delayed(self, by_s: float, now: float) -> float:
        """The node's loop ran so late: by what factor its patience has changed."""
        before, timeout_s = self.seconds, self._timeout_s
        fallen = before - (now - self._measured_at) * timeout_s * (MOST - 1) / FALL_S
        self._measured_at = now
        self.seconds = max(timeout_s, fallen, min(MOST * timeout_s, DELAYS * by_s))
        return self.seconds / before
