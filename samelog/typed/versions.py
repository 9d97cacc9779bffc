"""Which version of its topic's schema a record was written with. Pure.

A publisher with a schema marks each record; what has no mark has the version that was in force
where it was merged (docs/typed.md, "Which version a record has"). A mark says the digest of the
schema beside the number of the version, because the number means another schema in a topic that is
created again under the name. Invariant: a mark is never overruled, and a record that says a digest
is read by the schema of that digest or not at all.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import itemgetter

from samelog.typed.schema import Schema

SCHEMA_HEADER = "samelog.schema"
VERSIONS_MOST = 1000
"""Of a topic."""
FIRST = 1
NO_VERSION = 0
"""The version of a record whose mark is malformed."""
FOREIGN = -3
"""The version of a record whose mark says the digest of a schema that the topic does not have."""
DIGEST_CHARACTERS = 12
"""The part of a fingerprint that a mark says, and that `samelog schema history` shows."""
_MARK = re.compile(rb"([1-9][0-9]{0,3})(?:@([0-9a-f]{%d}))?" % DIGEST_CHARACTERS)
Since = Sequence[tuple[int, int]]
"""(offset, version) of a partition, in order: from that offset on, that version was in force."""


def mark(version: int, fingerprint: str) -> tuple[str, bytes]:
    """The header that says a record's version, whose schema has this fingerprint."""
    return SCHEMA_HEADER, b"%d@%s" % (version, fingerprint[:DIGEST_CHARACTERS].encode())


def number_in(value: bytes | None) -> int:
    """The number of a version that a header's value says, or NO_VERSION."""
    said = _MARK.fullmatch(value or b"")
    return NO_VERSION if said is None else int(said[1])


def marked_version(value: bytes | None, schemas: Mapping[int, Schema]) -> int:
    """The version of the topic with these schemas that a header's value says, NO_VERSION or
    FOREIGN. A topic that was created again may have the same schema under another number.
    """
    said = _MARK.fullmatch(value or b"")
    if said is None:
        return NO_VERSION
    number = int(said[1])
    if said[2] is None:
        return number
    digest = said[2].decode()
    if number in schemas and schemas[number].fingerprint.startswith(digest):
        return number
    same = (other for other, each in schemas.items() if each.fingerprint.startswith(digest))
    return max(same, default=FOREIGN)


def version_at(since: Since, offset: int) -> int:
    """The version in force at an offset. What is older than the first one has that: nobody has said
    anything else of it.
    """
    place = bisect_right(since, offset, key=itemgetter(0))
    return since[place - 1][1] if place else FIRST
