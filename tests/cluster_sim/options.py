"""What a simulated world is like; everything follows from the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.cluster_sim.rhythm import Rhythm

KINDS = (
    "kill",
    "kill_leader",
    "kill_all",
    "power_loss",
    "power_loss_all",
    "fuse",
    "pause",
    "cut",
    "cut_one_way",
    "isolate_leader",
    "split",
    "mend",
    "reset",
    "reset_all",
    "slow_network",
    "slow_disk",
    "failing_sync",
    "full_disk",
    "rot",
    "clock_jump",
    "wipe",
    "wipe_and_bootstrap",
    "stale_node",
    "twin_node",
    "stale_publisher",
    "kill_publisher",
    "power_loss_publisher",
    "fuse_publisher",
    "kill_subscriber",
    "power_loss_subscriber",
)


@dataclass(frozen=True, slots=True)
class Options:
    """One world. Times in simulated seconds."""

    seed: int
    nodes: int
    publishers: int
    subscribers: int
    topics: int
    partitions: int
    safety_s: float
    rhythm: Rhythm
    fault_every_s: float
    """While it is busy; at rest ten times as long."""
    kinds: tuple[str, ...]
    restart_s: float
    append_every_s: float
    """While it is busy; at rest nobody appends."""
    value_bytes: int
    latency_s: float
    slow_chance: float
    slow_s: float
    split_chance: float
    sync_s: float
    drift: float
    """Clocks run by up to this share too fast or too slow."""
    segment_bytes: int
    roll_bytes: int
    wal_bytes: int
    kept_entries: int
    snapshot_interval_s: float
    minority_stays_away: bool
    lazy_sync: bool
    """`fsync = "interval"`: what is written counts as durable."""
    retention_bytes: int
    """What topics keep of each partition; -1: everything."""
    resets: tuple[tuple[float, bool], ...] = ()
    """When an administrator resets the cluster, and whether hard."""
    runs_remembered: int = 64
    """Of each session, before a run is forgotten."""
    changes: tuple[tuple[float, str], ...] = ()
    """When an operator changes who belongs to the cluster, and how."""
    copies: bool = False
    """Segments are copied to a target before they are archived."""
    upgrades: bool = False
    """Nodes run two builds side by side, one of which knows more."""
    producers: int = 0
    """Of transactions; two share each transactional id."""
    keys: int = 0
    """Of records, in topics that are compacted; 0: they are not."""
    tombstones_stay_ms: int = 0
    first_keys: int = 0
    """Of records, in topics whose keys count once; 0: there are none."""
    horizon: str = "unlimited"
    """So long they count."""
    misfits: float = 0.0
    """How many records do not fit the schema, which nodes check; 0: there is none."""
    data_groups: int = 0
    replicas: int = 0
    """Of each data group."""
    stagers: int = 0
    """Writers that stage batches for a topic that is in data groups; producers of transactions
    write there, too. None: there is no such topic.
    """
    has_many_groups: bool = False
    """It is one of `many_groups`."""
    has_defaults: bool = False
    """An operator sets other default numbers of copies: default groups come and go, and topics that
    are created without a number are in data groups.
    """
    follows_groups: bool = False
    """Publishers and subscribers use the topic that is in data groups, too, and each entry of these
    is looked at.
    """
    converts: bool = False
    """An operator asks for other numbers of copies of topics that are on every node, too."""
    deaths_at_tasks: float = 0.0
    """In so many of the phases that tasks of placement come to, the leader of group 0 dies."""
    recreates: bool = False
    """It is one of `recreation.recreating`: topics are deleted and created again."""
    rots: bool = False
    """It is one of `rot.rotting`: publishers' files rot."""
    shares: bool = False
    """It is one of `shared_connections.sharing`: sessions share the connections of a process."""
    kind: str = ""
    """Of its topics, as `kinds` names it; empty: it is as the seed says."""
    cuts_leaders: bool = False
    """It is one of `cut_leaders.cutting`: leaders of data groups lose the leader of group 0."""
    stalls_groups: bool = False
    """It is one of `stalled_groups.stalling`: data groups have no majority for long."""
    forgets: bool = False
    """It is one of `forgetting.forgetting`: group 0 forgets transactions."""
    skip: frozenset[int] = frozenset()
    """Numbers of planned faults that are left out."""


CHANGES = ("add", "add", "remove", "replace", "readmit")
WIPES = ("wipe", "wipe_and_bootstrap")
FORGETTING = ("rot", *WIPES, "stale_node", "twin_node")
SURE = frozenset(("failing_sync", "slow_disk", *FORGETTING))
"""Faults by which a node loses, in its own way, what others count on."""


def from_seed(seed: int) -> Options:
    """The world of this seed; each tenth runs with `fsync = "interval"`, and faults that go with
    it.
    """
    upgrades = random.Random(f"upgrades of {seed}").random() < 0.3
    resets = _resets(seed)
    producers = 0 if resets else _producers(seed)
    options = replace(_drawn(seed), resets=resets, upgrades=upgrades, producers=producers)
    options = _compacted(options)
    if seed % 10:
        options = replace(options, changes=_changes(seed)) if _has_changes(options) else options
        return _with_groups(options)
    kinds = tuple(kind for kind in options.kinds if kind not in SURE)
    options = replace(
        options,
        lazy_sync=True,
        kinds=kinds,
        sync_s=min(options.sync_s, 0.02),
        minority_stays_away=False,
    )
    return _with_groups(options)


def many_groups(seed: int) -> Options:
    """Another world of this seed: of one to nine members, with 1 to 12 data groups of one to five
    replicas, and a topic in them that publishers write to. In each third members come and go, in
    each fourth there are hard resets, in the others writers of stages or of transactions. In half
    of them leaders of group 0 die at tasks, and in half an operator sets default numbers of copies.
    """
    draw = random.Random(f"many groups {seed}")
    nodes, learners = draw.choice(_SIZES)
    rhythm = Rhythm(draw.choice((2.0, 4.0)), draw.choice((1.0, 2.0, 6.0)))
    options = replace(
        _drawn(seed),
        nodes=nodes,
        rhythm=rhythm,
        safety_s=draw.choice((8.0, 12.0, 20.0)),
        data_groups=draw.randint(1, 12),
        minority_stays_away=False,
        has_many_groups=True,
        follows_groups=True,
        deaths_at_tasks=draw.choice((0.0, 0.0, 0.2, 0.5)),
    )
    has_defaults = random.Random(f"default groups {seed}").random() < 0.5
    options = replace(options, has_defaults=has_defaults)
    options = replace(options, replicas=min(nodes + learners, draw.randint(1, 5)))
    changes = (*_LEARNERS[:learners], *_many_changes(options, draw))
    options = replace(options, changes=changes, kinds=_bearable(options, changes, draw))
    if draw.random() < 0.25:
        times = sorted(draw.uniform(2.0, 8.0) for _ in range(draw.choice((1, 1, 2))))
        return replace(options, resets=tuple((at_s, True) for at_s in times))
    return replace(options, producers=draw.choice((0, 0, 2)), stagers=draw.choice((0, 1, 2)))


def converting(seed: int) -> Options:
    """Another world of many groups, into which partitions of group 0 move. Neither resets nor what
    stays on every node.
    """
    options = many_groups(seed)
    return replace(
        options,
        converts=True,
        has_defaults=False,
        kinds=tuple(kind for kind in options.kinds if kind in WIPES or kind not in FORGETTING),
        data_groups=min(3, options.data_groups),
        safety_s=max(12.0, options.safety_s),
        resets=(),
        retention_bytes=-1,
        keys=0,
        first_keys=0,
        publishers=max(2, options.publishers),
    )


_SIZES = ((1, 0), (1, 1), (3, 0), (3, 0), (3, 1), (5, 0), (5, 1), (7, 0), (7, 1), (7, 2))
"""How many voters a cluster begins with, and how many learners come soon."""
_LEARNERS = ((0.5, "learner"), (1.5, "learner"))


def _bearable(
    options: Options, changes: tuple[tuple[float, str], ...], draw: random.Random
) -> tuple[str, ...]:
    """Return all kinds for half of the worlds whose members stay: bits rot and old copies come back
    where replicas move, too, on members that no majority of a group needs. Elsewhere disks are only
    wiped.
    """
    if not changes and draw.random() < 0.5:
        return options.kinds
    spared = {*FORGETTING} - {*WIPES}
    return tuple(kind for kind in options.kinds if kind not in spared)


def _many_changes(options: Options, draw: random.Random) -> tuple[tuple[float, str], ...]:
    if options.nodes == 1 or draw.random() >= 1 / 3:
        return ()
    times = sorted(draw.uniform(2.0, options.safety_s) for _ in range(draw.choice((2, 4, 8))))
    return tuple((at_s, draw.choice(CHANGES)) for at_s in times)


def _with_groups(options: Options) -> Options:
    """Of each third world whose members stay. Drawn apart, too. Fewer replicas than members only
    where as many may fail as a group can do without.
    """
    draw = random.Random(f"data groups {options.seed}")
    number = draw.choice((1, 3, 12)) if draw.random() < 1 / 3 and not options.changes else 0
    is_mild = not (options.minority_stays_away or options.lazy_sync)
    some = is_mild and not set(options.kinds) & set(FORGETTING)
    replicas = draw.choice((1, 2, 3, 3, options.nodes)) if some else options.nodes
    is_plain = not (options.resets or options.upgrades or options.lazy_sync)
    stagers = draw.choice((1, 2)) if number and is_plain else 0
    replicas = min(replicas, options.nodes)
    return replace(options, data_groups=number, replicas=replicas, stagers=stagers)


def _resets(seed: int) -> tuple[tuple[float, bool], ...]:
    """Of each fifth world. Drawn apart, so that the others are what they were without."""
    draw = random.Random(f"resets {seed}")
    if draw.random() >= 0.2:
        return ()
    times = sorted(draw.uniform(0.5, 5.0) for _ in range(draw.choice((1, 1, 2, 3))))
    return tuple((at_s, draw.random() < 0.7) for at_s in times)


def _producers(seed: int) -> int:
    """Of each fourth world. Drawn apart, too."""
    draw = random.Random(f"producers {seed}")
    return draw.choice((2, 2, 4)) if draw.random() < 0.25 else 0


def _compacted(options: Options) -> Options:
    """Each fourth world. Drawn apart, too."""
    draw = random.Random(f"compacts {options.seed}")
    if draw.random() >= 0.25:
        return options
    return replace(
        options,
        keys=draw.choice((1, 5, 50)),
        tombstones_stay_ms=draw.choice((0, 1000, 20_000)),
        producers=0,
        resets=(),
        segment_bytes=draw.choice((1 << 12, 1 << 12, 1 << 14)),
        append_every_s=min(options.append_every_s, 0.1),
        safety_s=max(options.safety_s, 24.0),
        retention_bytes=draw.choice((-1, -1, 1 << 14)),
    )


def _has_changes(options: Options) -> bool:
    return options.nodes > 1 and not options.minority_stays_away


def _changes(seed: int) -> tuple[tuple[float, str], ...]:
    """Of each third world. Drawn apart, too."""
    draw = random.Random(f"changes {seed}")
    if draw.random() >= 1 / 3:
        return ()
    times = sorted(draw.uniform(0.5, 16.0) for _ in range(draw.choice((2, 4, 8, 8))))
    return tuple((at_s, draw.choice(CHANGES)) for at_s in times)


def _drawn(seed: int) -> Options:
    draw = random.Random(f"world {seed}")
    calm = draw.random() < 0.1
    share = draw.choice((0.2, 0.4, 1.0))
    kinds = tuple(kind for kind in KINDS if draw.random() < share)
    rhythm = Rhythm(draw.choice((1.0, 2.0, 4.0)), draw.choice((2.0, 10.0, 30.0)))
    return Options(
        seed=seed,
        nodes=draw.choice((1, 3, 3, 3, 3, 5)),
        publishers=draw.choice((1, 2, 2, 3)),
        subscribers=draw.choice((0, 1, 1, 2)),
        topics=draw.choice((1, 1, 2)),
        partitions=draw.choice((1, 1, 2)),
        safety_s=rhythm.lasting(draw.choice((4.0, 8.0, 16.0))),
        rhythm=rhythm,
        fault_every_s=draw.choice((0.3, 0.7, 2.0)),
        kinds=() if calm else kinds,
        restart_s=draw.choice((0.1, 0.5, 2.0)),
        append_every_s=draw.choice((0.05, 0.2, 0.2, 0.5, 0.5, 1.0)),
        value_bytes=draw.choice((10, 100, 1500)),
        latency_s=draw.choice((0.0002, 0.002, 0.02)),
        slow_chance=0.0 if calm else draw.choice((0.0, 0.02, 0.1)),
        slow_s=draw.choice((0.05, 0.5)),
        split_chance=draw.choice((0.0, 0.1)),
        sync_s=draw.choice((0.0002, 0.002, 0.02, 0.1)),
        drift=draw.choice((0.0, 0.0, 0.02, 0.1)),
        segment_bytes=draw.choice((1 << 12, 1 << 14, 1 << 20)),
        roll_bytes=draw.choice((1 << 12, 1 << 14, 1 << 20)),
        wal_bytes=draw.choice((1 << 12, 1 << 14, 1 << 20)),
        kept_entries=draw.choice((0, 10, 100)),
        snapshot_interval_s=draw.choice((0.3, 1.0, 5.0)),
        minority_stays_away=draw.random() < 0.2,
        lazy_sync=False,
        retention_bytes=draw.choice((-1, -1, 0, 1 << 14)),
        copies=draw.random() < 0.5,
    )


def with_rules(options: Options) -> Options:
    """The same world, whose topics may have rules of their own for what is merged: without what is
    left out of such worlds, and with more records.
    """
    return replace(
        options,
        keys=0,
        producers=0,
        resets=(),
        upgrades=False,
        minority_stays_away=False,  # all have to support the level
        data_groups=0,
        stagers=0,
        append_every_s=min(options.append_every_s, 0.1),
    )
