"""A slice of the simulated worlds. More: `python -m tests.cluster_sim`."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.cluster_sim.options import from_seed
from tests.cluster_sim.run import run_options, run_seed

SHORT_S = 2.0
"""Of faults: five times as many worlds for the same time."""


@pytest.mark.parametrize("first", range(1, 17, 4))
def test_worlds_hold(first: int) -> None:
    results = [run_seed(seed) for seed in range(first, first + 4)]
    assert sum(result.acknowledged for result in results) > 0


@pytest.mark.parametrize("first", range(101, 161, 12))
def test_short_worlds_hold(first: int) -> None:
    options = [replace(from_seed(seed), safety_s=SHORT_S) for seed in range(first, first + 12)]
    results = [run_options(option) for option in options]
    assert sum(result.acknowledged for result in results) > 0


@pytest.mark.parametrize("seed", [49, 54, 59, 79, 196, 319, 441, 201_351])
def test_worlds_that_did_not_hold_once(seed: int) -> None:
    run_seed(seed)


@pytest.mark.parametrize("seed", [5, 30])
def test_a_seed_is_one_world_to_the_byte(seed: int) -> None:
    """Also in another process, where sets of strings have another order."""
    script = f"from tests.cluster_sim.run import run_seed; print(run_seed({seed}).digest)"
    digests = {run_seed(seed).digest}
    for hash_seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(ran.stdout.strip())
    assert len(digests) == 1


@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", range(10_000, 12_000, 100))
def test_many_worlds_hold(first: int) -> None:
    for seed in range(first, first + 100):
        run_seed(seed)
