"""Raft as a node's files left it: the log and hard state, and what the node's record says of it.

Invariant: a node without a vote, or one in doubt of what it acknowledged, starts as such.
"""

from __future__ import annotations

import random

from samelog.config.tables.node import RaftSettings
from samelog.consensus import Raft, RaftConfig
from samelog.sequencer.cluster.node_dir import NodeRecord
from samelog.sequencer.raft.store import RaftStore


def restored(
    store: RaftStore, record: NodeRecord, settings: RaftSettings, rng: random.Random, *, now: float
) -> Raft:
    """A follower with everything that is in the files; `now`: monotonic seconds."""
    raft = Raft(
        record.number,
        tuple(record.voters),
        config=RaftConfig(
            heartbeat_s=settings.heartbeat_ms / 1000,
            election_timeout_s=settings.election_ms / 1000,
        ),
        random=rng,
        now=now,
        snapshot=store.snapshot,
        entries=store.entries,
        hard_state=store.hard_state,
        may_vote=record.may_vote,
        doubtful=record.doubtful,
    )
    if record.voters:
        raft.begin_group()
    return raft
