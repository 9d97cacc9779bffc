"""Mirrors in simulated worlds: never two histories in one; and each planted bug is found."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.mirror.world import Harm, World
from tests.mutants import mirroring as planted

SEEDS = range(1, 61)
FOUND_IN: dict[Callable[[], AbstractContextManager[None]], int] = {
    planted.take_whatever_the_sidecar_brings: 9,
    planted.teach_dedup_what_is_mirrored: 1,
    planted.positions_at_once: 2,
    planted.go_on_after_a_fork: 14,
}
"""Planted bugs, and the first world in which each shows."""


def run(seed: int, *, is_compacted: bool = False) -> World:
    with TemporaryDirectory() as directory:
        world = World(seed, is_compacted=is_compacted)
        asyncio.run(world.run(Path(directory)))
        return world


@pytest.mark.sample
@pytest.mark.usefixtures("simulates")
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


@pytest.mark.usefixtures("simulates")
def test_a_seed_is_one_world() -> None:
    assert run(5).mirror.merges == run(5).mirror.merges


@pytest.mark.usefixtures("simulates", "plants_bugs")
@pytest.mark.parametrize("mutant", FOUND_IN, ids=lambda mutant: mutant.__name__)
def test_planted_bugs_are_found(mutant: Callable[[], AbstractContextManager[None]]) -> None:
    run(FOUND_IN[mutant])
    with mutant(), pytest.raises((Harm, KeyError)):
        run(FOUND_IN[mutant])


@pytest.mark.usefixtures("simulates")
def test_what_a_source_compacts_is_where_it_was_or_gone() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        world = run(seed, is_compacted=True)
        seen["kills"] += world.kills
        seen["dropped"] += len(world.source.dropped)
        seen["records"] += world.mirror.next_offset
        seen["goes on"] += not world.stopped
    assert seen["records"] > 20 * len(SEEDS), seen
    assert seen["dropped"] > 5 * len(SEEDS), seen
    assert seen["goes on"] > len(SEEDS) / 4, seen


@pytest.mark.usefixtures("simulates")
def test_a_mirror_that_stops_at_what_is_compacted_is_found() -> None:
    with planted.stop_at_what_is_compacted(), pytest.raises(Harm):
        _run_all()


def _run_all() -> None:
    for seed in SEEDS:
        run(seed, is_compacted=True)
