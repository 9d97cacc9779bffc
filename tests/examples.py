"""How many examples a property test takes, where it needs another number than its profile says.

A number that a test gives itself overrides hypothesis's profile, so `make check`, whose profile
`quick` takes few examples, would take all. Tests are imported after the profile was chosen.
"""

from __future__ import annotations

from hypothesis import settings

USUAL = 100


def at_most(count: int) -> int:
    """As many examples, or fewer where the profile takes fewer than usual."""
    profile = settings().max_examples
    return count if profile >= USUAL else min(count, profile)
