"""Mirrors in simulated worlds: never two histories in one; and each planted bug is found."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.mirror.world import World
from tests.mutants import mirroring as planted

SEEDS = range(1, 61)
HUNT = range(1, 200)
"""Worlds in which a planted bug has to show."""

FOUND_HERE = (
    planted.take_whatever_the_sidecar_brings,
    planted.teach_dedup_what_is_mirrored,
    planted.positions_at_once,
    planted.go_on_after_a_fork,
    planted.promote_a_topic_twice,
)


def run(seed: int) -> World:
    with TemporaryDirectory() as directory:
        world = World(seed)
        asyncio.run(world.run(Path(directory)))
        return world


def test_worlds_keep_one_history_in_each_mirror() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        world = run(seed)
        seen["kills"] += world.kills
        seen["forks"] += world.forks
        seen["stopped"] += bool(world.stopped)
        seen["promoted"] += world.promoted_at is not None
        seen["gaps"] += len(world.brought.gaps)
        seen["records"] += world.mirror.next_offset
    assert min(seen.values()) > 0, seen
    assert seen["kills"] > 2 * len(SEEDS), seen
    assert seen["records"] > 20 * len(SEEDS), seen


def test_a_seed_is_one_world() -> None:
    assert run(5).mirror.merges == run(5).mirror.merges


@pytest.mark.parametrize("mutant", FOUND_HERE, ids=lambda mutant: mutant.__name__)
def test_planted_bugs_are_found(mutant: Callable[[], AbstractContextManager[None]]) -> None:
    with mutant():
        assert any(map(harmed, HUNT)), "the worlds are too kind"


def harmed(seed: int) -> bool:
    """Whether what must never be came to be."""
    with suppress(Exception):
        run(seed)
        return False
    return True
