"""Which topics and groups are mirrored, and as what. Pure.

Invariant: what is a mirror at the source, or internal, is chosen by its whole name alone, so that
two clusters that mirror everything to each other mirror nothing twice (docs/mirror.md, M20).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from samelog.archiver.copies.value_schema import VALUE_SCHEMA
from samelog.config.tables.mirror import PLACEHOLDER
from samelog.sequencer.state.topic_settings import MAX_MESSAGE_BYTES, TIMESTAMP_TYPE
from samelog.typed.compatibility import COMPATIBILITY
from samelog.typed.enforcing import ACCEPT, ENFORCE

COPIED_SETTINGS = (
    MAX_MESSAGE_BYTES,
    TIMESTAMP_TYPE,
    VALUE_SCHEMA,
    COMPATIBILITY,
    ENFORCE,
    ACCEPT,
)
"""Of format, limits and schema. Others, such as retention, are the destination's (M17)."""
INTERNAL = "__"


def is_named(pattern: str, name: str) -> bool:
    """Whether a pattern is this very name."""
    return pattern == name


def matches(pattern: str, name: str) -> bool:
    """Whether a name is chosen: it is the pattern, begins as it, or is matched as a whole."""
    if pattern.startswith("re:"):
        return re.fullmatch(pattern[3:], name) is not None
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return pattern == name


def is_chosen(patterns: Iterable[str], topic: str, *, is_mirror: bool) -> bool:
    """Whether a topic is mirrored."""
    if is_mirror or topic.startswith(INTERNAL):
        return topic in patterns
    return any(matches(pattern, topic) for pattern in patterns)


def mirror_name(named: str, topic: str) -> str:
    """What the mirror of a topic is called."""
    return named.replace(PLACEHOLDER, topic)


def copied_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that come along."""
    return {key: value for key, value in settings.items() if key in COPIED_SETTINGS}
