"""Kinds of topics in worlds of data groups: what topics are made with, and what is written to them.

Invariant: all topics of such a world are of one kind, also those that are made in data groups.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from samelog.archiver.copies.manifests import ARCHIVE_COPY, SEGMENTS
from samelog.sequencer.state.tables.keys import DEDUP_KEY, DEDUP_KEY_HORIZON, FIRST
from samelog.typed.enforcing import ENFORCE, Enforce
from tests.cluster_sim.compaction import compacts
from tests.cluster_sim.options import Options

SMALL_BYTES = 1 << 12
KEPT_BYTES = 1 << 14


def settings_of(options: Options) -> dict[str, str]:
    """What topics are made with."""
    settings = {"retention.bytes": str(options.retention_bytes)}
    if options.keys:
        settings |= compacts(options)
    if options.first_keys:
        settings |= {DEDUP_KEY: FIRST, DEDUP_KEY_HORIZON: options.horizon}
    if options.misfits:
        settings[ENFORCE] = Enforce.NODE.value
    if options.copies:
        settings[ARCHIVE_COPY] = SEGMENTS
    return settings


def of_kind(options: Options, kind: str) -> Options:
    """The same world, of one kind of topics. Drawn apart."""
    draw = random.Random(f"{kind} {options.seed}")
    options = replace(
        options,
        kind=kind,
        producers=0,
        stagers=0,
        upgrades=False,
        minority_stays_away=False,
        segment_bytes=SMALL_BYTES,
        append_every_s=min(options.append_every_s, 0.1),
        retention_bytes=draw.choice((-1, KEPT_BYTES)),
    )
    return KINDS_OF_MATRICES[kind](options, draw)


def _compacted(options: Options, draw: random.Random) -> Options:
    return replace(
        options,
        keys=draw.choice((1, 5, 50)),
        tombstones_stay_ms=draw.choice((0, 1000, 20_000)),
        retention_bytes=-1,
    )


def _deleted(options: Options, draw: random.Random) -> Options:
    return replace(_compacted(options, draw), retention_bytes=KEPT_BYTES)


def _keyed(options: Options, draw: random.Random) -> Options:
    return replace(
        options,
        first_keys=draw.choice((10, 100, 1000)),
        horizon=draw.choice(("unlimited", "unlimited", "20", "3s")),
    )


def _typed(options: Options, draw: random.Random) -> Options:
    return replace(options, misfits=draw.choice((0.05, 0.3)))


def _transactional(options: Options, draw: random.Random) -> Options:
    return replace(options, producers=2)


def _mirror(options: Options, draw: random.Random) -> Options:
    """One sidecar writes."""
    return replace(options, publishers=1)


def _log(options: Options, draw: random.Random) -> Options:
    return options


MIRROR, VIEW = "mirror", "view"
KINDS_OF_TOPICS: Mapping[str, Callable[[Options, random.Random], Options]] = {
    "log": _log,
    "compacted": _compacted,
    "compacted,deleted": _deleted,
    "keyed": _keyed,
    "typed": _typed,
    "transactional": _transactional,
}
KINDS_OF_MATRICES = {**KINDS_OF_TOPICS, MIRROR: _mirror, VIEW: _log}
"""The writer of a mirror would have to begin again after faults, so other worlds have none."""
