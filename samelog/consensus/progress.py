"""What a leader knows of one follower, and how it feeds it.

PROBE: we don't know where the logs part; one append at a time, until one is accepted. REPLICATE:
the logs are known to meet; appends are pipelined within a window. SNAPSHOT: the follower needs
entries that are compacted; a snapshot goes in chunks, one at a time.

Invariant: match < next, and the follower acknowledged everything up to `match` to this leader,
unless it lost it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf

from samelog.consensus.types import Snapshot


class ProgressState(Enum):
    """How a follower is fed."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class ProgressStatus:
    """A follower as the leader sees it, for displays. `last_active` is in seconds of `now`."""

    match: int
    next: int
    state: ProgressState
    last_active: float


@dataclass(slots=True)
class SnapshotTransfer:
    """A snapshot on its way: the chunk at `offset` was sent at `sent_at` and not answered yet."""

    snapshot: Snapshot
    offset: int
    sent_at: float


class Progress:
    """One follower. The transitions between states are the methods below and nowhere else."""

    __slots__ = (
        "commit_sent",
        "counts",
        "due_at",
        "first_stream",
        "inflight",
        "is_far",
        "last_active",
        "long_until",
        "match",
        "next",
        "probe_sent",
        "state",
        "stream",
        "transfer",
    )

    def __init__(self, next_index: int, now: float) -> None:
        self.match = 0
        self.next = next_index
        self.state = ProgressState.PROBE
        self.stream = 1
        self.first_stream = 1
        """Answers to older ones say nothing any more."""
        self.last_active = now
        self.commit_sent = 0
        self.counts = True
        self.is_far = False
        """What it lacks is gathered before it is sent, until `due_at`."""
        self.due_at = inf
        self.probe_sent = False
        self.inflight: list[int] = []
        self.long_until = 0.0
        """Until then a long entry that was sent alone may take; 0: there is none."""
        self.transfer: SnapshotTransfer | None = None

    def status(self) -> ProgressStatus:
        """A copy for display."""
        return ProgressStatus(self.match, self.next, self.state, self.last_active)

    def may_append(self, max_inflight: int) -> bool:
        """Whether another append may be sent now."""
        if self.state is ProgressState.REPLICATE:
            return len(self.inflight) < max_inflight and not self.long_until
        return self.state is ProgressState.PROBE and not self.probe_sent

    def append_sent(self, last_index: int) -> None:
        """An append with entries from `next` to `last_index` (none if below `next`) was sent."""
        if self.state is ProgressState.PROBE:
            self.probe_sent = True
        elif last_index >= self.next:
            self.inflight.append(last_index)
            self.next = last_index + 1

    def accepted(self, match: int, stream: int) -> None:
        """The follower holds the leader's log up to `match`."""
        inflight = self.inflight
        while inflight and inflight[0] <= match:
            inflight.pop(0)
        if not inflight:
            self.long_until = 0.0
        self.match = max(self.match, match)
        self.next = max(self.next, match + 1)
        transfer = self.transfer
        if (self.state is ProgressState.PROBE and stream == self.stream) or (
            transfer is not None and match >= transfer.snapshot.last_index
        ):
            self._enter(ProgressState.REPLICATE, self.match + 1)

    def rejected(self, next_index: int) -> None:
        """The logs part before what was sent: probe from `next_index`."""
        self._enter(ProgressState.PROBE, max(next_index, self.match + 1))

    def lost_entries(self, next_index: int) -> None:
        """The follower no longer holds what it acknowledged."""
        self.match = 0
        self._enter(ProgressState.PROBE, max(next_index, 1))
        self.first_stream = self.stream

    def send_snapshot(self, snapshot: Snapshot, now: float) -> SnapshotTransfer:
        """Entries from `next` are compacted: send this instead, from its beginning."""
        self._enter(ProgressState.SNAPSHOT, self.next)
        self.transfer = SnapshotTransfer(snapshot, 0, now)
        return self.transfer

    def _enter(self, state: ProgressState, next_index: int) -> None:
        self.state = state
        self.stream += 1
        self.next = next_index
        self.probe_sent = False
        self.inflight.clear()
        self.long_until = 0.0
        self.transfer = None
