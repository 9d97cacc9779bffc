"""The names in a merged partition's directory: Kafka's, and a few of our own beside them.

Invariant: a segment's name is its base offset, in 20 decimal digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PARTITION_FILE = "partition.json"
LOG, INDEX, TIME_INDEX = ".log", ".index", ".timeindex"
_LOG = re.compile(r"([0-9]{20})\.log")


def segment_name(base_offset: int, suffix: str) -> str:
    """The name of one of a segment's files."""
    return f"{base_offset:020d}{suffix}"


def segment_bases(names: Iterable[str]) -> list[int]:
    """The base offsets of the segments among the names, in order."""
    return sorted(int(match[1]) for name in names if (match := _LOG.fullmatch(name)))
