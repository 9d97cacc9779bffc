"""Who refuses records that do not fit their topic's schema: a setting of the topic.

Invariant: without the setting nobody does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

ENFORCE = "schema.enforce"
ACCEPT = "schema.accept"
"""The oldest version that counts for new records, where nodes check."""


class Enforce(Enum):
    """Values of the setting."""

    OFF = "off"
    PUBLISHER = "publisher"
    """samelog's own publishers check what they append."""
    NODE = "node"
    """Besides, nodes check what they merge, whoever brought it."""


def is_checked(settings: Mapping[str, str]) -> bool:
    """Whether samelog's own publishers are to check what they append to a topic."""
    return settings.get(ENFORCE, Enforce.OFF.value) != Enforce.OFF.value


def is_judged(settings: Mapping[str, str]) -> bool:
    """Whether nodes check what they merge into a topic."""
    return settings.get(ENFORCE) == Enforce.NODE.value


def oldest_accepted(settings: Mapping[str, str], newest: int) -> int:
    """The oldest version that a new record may be of; the newest always counts."""
    return min(int(settings.get(ACCEPT, "1")), newest)
