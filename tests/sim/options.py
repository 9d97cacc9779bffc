"""What a simulated world is like; everything follows from the seed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any

from samelog.consensus import Membership, RaftConfig


@dataclass(frozen=True, slots=True)
class Options:
    """One world. Times in simulated seconds, `*_chance` are probabilities."""

    seed: int
    voters: int
    learners: int
    safety_s: float
    liveness_s: float
    in_order: bool
    drop_chance: float
    duplicate_chance: float
    slow_chance: float
    slow_s: float
    codec_chance: float
    crash_point_chance: float
    vote_crash_chance: float
    young_leader_crash_chance: float
    restart_s: float
    fault_every_s: float
    proposal_every_s: float
    read_every_s: float
    sync_s: float
    entry_bytes: int
    snapshot_bytes: int
    clock_skew: float
    wipes: bool
    coups: bool
    changes: bool
    lazy_sync: bool
    """`fsync = "interval"`: entries are acknowledged when they are written."""
    config: RaftConfig
    reach_chance: float = 0.0
    """That a publisher itself brings its bytes to a node; 0: entries name no bytes."""
    minority_stays_away: bool = False
    """As many nodes as may fail are down when the others have to make progress."""
    quiet: bool = False
    """A group in which nothing happens rests, and its members say for it that they live."""
    stalls_s: float = 0.0
    """Every node stands still for up to so long, again and again: its host has too little time."""
    skip: frozenset[int] = frozenset()
    """Numbers of faults that are left out."""

    @property
    def membership(self) -> Membership:
        """Who belongs to the group at first."""
        members = tuple(range(self.voters + self.learners))
        return Membership(members[: self.voters], members[self.voters :])


RESTLESS: dict[str, Any] = {
    "voters": 3,
    "learners": 0,
    "safety_s": 8.0,
    "young_leader_crash_chance": 0.1,
    "restart_s": 0.1,
    "fault_every_s": 0.15,
    "proposal_every_s": 0.03,
}
"""Worlds where leaders come and go: entries of older terms meet again (figure 8 of the paper)."""

STARVED: dict[str, Any] = {
    "voters": 3,
    "safety_s": 60.0,
    "drop_chance": 0.0,
    "duplicate_chance": 0.0,
    "slow_chance": 0.0,
    "crash_point_chance": 0.0,
    "vote_crash_chance": 0.0,
    "young_leader_crash_chance": 0.0,
    "fault_every_s": math.inf,
    "proposal_every_s": 0.2,
    "read_every_s": 0.1,
    "sync_s": 0.02,
    "clock_skew": 0.0,
    "wipes": False,
    "coups": False,
    "changes": False,
    "lazy_sync": False,
}
"""Worlds in which nothing fails, but everybody is late."""


QUIET_SHARE = 0.25


def from_seed(seed: int) -> Options:
    """The world of this seed. Whether its group rests is drawn apart from all else."""
    options, draw = _from_seed(seed), random.Random(f"quiet {seed}")
    if options.stalls_s or options.wipes:
        return options  # with somebody who has no vote, nobody rests
    if draw.random() >= QUIET_SHARE:
        return options
    every_s = draw.choice((options.proposal_every_s, 0.5, 1.0))
    read_every_s = options.read_every_s if options.changes else every_s
    return replace(options, quiet=True, proposal_every_s=every_s, read_every_s=read_every_s)


def _from_seed(seed: int) -> Options:
    options = _drawn(seed)
    if seed % 40 == 17:
        config = options.config
        stalls_s = config.election_timeout_s * random.Random(seed).choice((1.5, 2.0))
        return replace(options, **STARVED, stalls_s=stalls_s)
    if seed % 9 == 4:
        draw = random.Random(seed)
        options = replace(
            options,
            reach_chance=draw.choice((0.3, 0.7, 0.95)),
            minority_stays_away=draw.random() < 0.5 and not (options.changes or options.lazy_sync),
            wipes=False,
        )
    return replace(options, **RESTLESS) if seed % 10 == 3 else options


def _drawn(seed: int) -> Options:
    draw = random.Random(seed * 7919 + 1)
    changes, lazy_sync = seed % 5 in (2, 4), seed % 5 == 1
    voters = draw.choice((1, 2, 2, 3, 3, 5) if changes else (1, 3, 3, 3, 5, 5))
    calm = draw.random() < 0.2
    return Options(
        seed=seed,
        voters=voters,
        learners=draw.choice((0, 0, 0, 1)),
        safety_s=draw.choice((1.5, 2.0, 2.0, 3.0, 5.0, 8.0)),
        liveness_s=12.0,
        in_order=draw.random() < 0.6,
        drop_chance=0.0 if calm else draw.choice((0.0, 0.02, 0.1, 0.3)),
        duplicate_chance=0.0 if calm else draw.choice((0.0, 0.05, 0.3)),
        slow_chance=0.0 if calm else draw.choice((0.0, 0.05, 0.3)),
        slow_s=draw.choice((0.05, 0.3, 1.5)),
        codec_chance=draw.choice((0.0, 0.1)),
        crash_point_chance=draw.choice((0.0, 0.0005, 0.004)),
        vote_crash_chance=draw.choice((0.0, 0.0, 0.3)),
        young_leader_crash_chance=draw.choice((0.0, 0.0, 0.1, 0.3)),
        restart_s=draw.choice((0.005, 0.1, 2.0)),
        fault_every_s=draw.choice((0.15, 0.5, 2.0)),
        proposal_every_s=draw.choice((0.01, 0.03, 0.2)),
        read_every_s=draw.choice((0.01, 0.1)),
        sync_s=draw.choice((0.0002, 0.002, 0.02, 0.1)),
        entry_bytes=draw.choice((1, 30, 300)),
        snapshot_bytes=draw.choice((10, 1000, 5000)),
        clock_skew=draw.choice((0.0, 0.0, 0.05, 0.2)),
        wipes=voters >= 3 and draw.random() < 0.25 and not (changes or lazy_sync),
        coups=draw.random() < 0.2,
        changes=changes,
        lazy_sync=lazy_sync,
        config=RaftConfig(
            max_append_bytes=draw.choice((64, 500, 1 << 20)),
            max_inflight=draw.choice((1, 4, 64)),
            snapshot_chunk_bytes=draw.choice((64, 700, 256 << 10)),
            max_uncommitted_bytes=draw.choice((200, 5000, 64 << 20)),
        ),
    )
