"""Which version of its topic's schema a record was written with. Pure.

A publisher with a schema marks each record; what has no mark has the version that was in force
where it was merged (docs/typed.md, "Which version a record has"). Invariant: a mark is never
overruled.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter

SCHEMA_HEADER = "samelog.schema"
VERSIONS_MOST = 1000
"""Of a topic."""
FIRST = 1
_DIGITS = re.compile(rb"[1-9][0-9]{0,3}")
Since = Sequence[tuple[int, int]]
"""(offset, version) of a partition, in order: from that offset on, that version was in force."""


def mark(version: int) -> tuple[str, bytes]:
    """The header that says a record's version."""
    return SCHEMA_HEADER, b"%d" % version


def parse_mark(value: bytes | None) -> int | None:
    """The version that a header's value says; None: it is no version."""
    return int(value) if value is not None and _DIGITS.fullmatch(value) else None


def version_at(since: Since, offset: int) -> int:
    """The version in force at an offset. What is older than the first one has that: nobody has said
    anything else of it.
    """
    place = bisect_right(since, offset, key=itemgetter(0))
    return since[place - 1][1] if place else FIRST
