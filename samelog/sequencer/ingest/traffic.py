"""How much a node took in, by session: for those who look at it.

Invariant: counts only grow, but for sessions that are forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

from samelog.runtime.counters import Meter


class Traffic:
    """Batches since the node was started, from publishers, Kafka clients and peers."""

    def __init__(self) -> None:
        self.total_bytes = self.total_records = 0
        self.sessions: dict[str, Meter] = {}
        """Of their bytes."""
        self.records: Counter[str] = Counter()
        """Session -> how many."""

    def took(self, session: str, size: int, records: int, now: float) -> None:
        """Count bytes and records of a session that were written."""
        self.total_bytes += size
        self.total_records += records
        self.records[session] += records
        meter = self.sessions.get(session)
        if meter is None:
            meter = self.sessions[session] = Meter(now)
        meter.add(size, now)

    def keep(self, sessions: Container[str]) -> None:
        """Forget the sessions that are not among these."""
        for name in [name for name in self.sessions if name not in sessions]:
            del self.sessions[name], self.records[name]
