"""What pages of the console show of a node, and what changed between two looks at it.

A document has sections; a section has rows by key. A change has only the rows that differ, and
null for those that are gone. A page that applies all changes since a document has the newest one.

Invariant: everything here is a function of its arguments; `a` with `changes(a, b)` is `b`. Pages
apply changes in `files/live.js`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

ShownRow = Mapping[str, Any]
ShownRows = Iterator[tuple[str, ShownRow] | None]
"""None stands for a step without a row."""
Section = Mapping[str, ShownRow]
Document = Mapping[str, Section]
Change = dict[str, dict[str, ShownRow | None]]


def changes(before: Document, now: Document) -> Change:
    """The rows of `now` that `before` has not, and null for those that are no more."""
    found = {}
    for name in (*now, *(each for each in before if each not in now)):
        rows = _section_changes(before.get(name, {}), now.get(name, {}))
        if rows:
            found[name] = rows
    return found


def _section_changes(before: Section, now: Section) -> dict[str, ShownRow | None]:
    if before is now:
        return {}
    found: dict[str, ShownRow | None] = {
        key: row for key, row in now.items() if key not in before or before[key] != row
    }
    found.update((key, None) for key in before if key not in now)
    return found


def as_event(kind: str, content: Document | Change) -> bytes:
    """A server-sent event."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(content))
