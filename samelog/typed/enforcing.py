"""Who refuses records that do not fit their topic's schema: a setting of the topic.

Invariant: without the setting nobody does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

ENFORCE = "schema.enforce"


class Enforce(Enum):
    """Values of the setting."""

    OFF = "off"
    PUBLISHER = "publisher"
    """samelog's own publishers check what they append."""


def is_checked(settings: Mapping[str, str]) -> bool:
    """Whether samelog's own publishers are to check what they append to a topic."""
    return settings.get(ENFORCE, Enforce.OFF.value) != Enforce.OFF.value
