"""One version of a topic's schema, as the replicated state has it.

Invariant: field order is the format of snapshots.
"""

from __future__ import annotations

import msgspec


class SchemaVersion(msgspec.Struct, frozen=True, array_like=True):
    """One version of a topic's schema: which text it is, and since when."""

    fingerprint: str
    set_ms: int
