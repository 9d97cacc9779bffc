"""What a node measures while it works: for monitoring, and nothing else.

Latencies are counted from the timestamps of records, so they mean something where those are the
time of appending; records that are older than OLD_S, as when a backlog is published, are not
counted. Of a piece of a log the oldest batch counts.

Invariant: nothing that the node does depends on what is here; it costs some additions for each
piece, and each batch that is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import TYPE_CHECKING

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES, max_timestamp
from samelog.runtime.clock import Clock
from samelog.runtime.counters import FAST_S, LATENCY_S, Histogram, ListenerTally, Meter

if TYPE_CHECKING:
    from typing_extensions import Buffer

OLD_S = 3600.0


class Traffic:
    """What a node took in since its start, by session: batches from publishers, Kafka clients and
    peers. Counts only grow, but for sessions that are forgotten.
    """

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


class Measures:
    """One node's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.append_to_merged = Histogram(LATENCY_S)
        self.append_to_read = Histogram(LATENCY_S)
        self.merged_bytes = 0
        """Since the start, but for what was copied from peers."""
        self.sent_records = 0
        self.loop_delay = Histogram(FAST_S)
        self.traffic = Traffic()
        """What came in, into whichever group."""
        self.kafka: dict[str, ListenerTally] = {}
        """By listener."""

    def merged(self, size: int, appended_ms: int) -> None:
        """A piece was merged, whose first batch has this newest timestamp."""
        self.merged_bytes += size
        took_s = (self._clock.wall_ms() - appended_ms) / 1000
        if took_s < OLD_S:
            self.append_to_merged.observe(max(0.0, took_s))

    def sent(self, data: Buffer) -> None:
        """Batches of a merged log were sent to a subscriber or a Kafka consumer."""
        scan = kernels.scan(data, verify_crc=False, max_batch_bytes=HELD_BATCH_BYTES)
        self.sent_records += scan.records
        took_s = (self._clock.wall_ms() - max_timestamp(data)) / 1000
        if took_s < OLD_S:
            self.append_to_read.observe(max(0.0, took_s))
