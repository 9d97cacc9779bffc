"""A short turn for every target; the seed is in the test's name, so a failure can be repeated."""

from __future__ import annotations

import logging
import random

import pytest

from tests.fuzz.damage import damaged
from tests.fuzz.targets import make_targets

TARGETS = make_targets()
ROUNDS = {"session-files": 60, "merged-files": 40, "raft-messages": 150, "configuration": 150}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """The logs speak of every damage."""
    caplog.set_level(logging.CRITICAL, "samelog")


@pytest.mark.parametrize("name", TARGETS)
def test_valid_input_is_taken(name: str) -> None:
    for seed in TARGETS[name].seeds:
        TARGETS[name].run(seed)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("seed", range(3))
def test_damaged_input_is_answered(name: str, seed: int) -> None:
    target, source = TARGETS[name], random.Random(seed)
    for number in range(ROUNDS.get(name, 500)):
        data = damaged(source, target.seeds)
        try:
            target.run(data)
        except Exception as error:
            error.add_note(f"seed {seed}, round {number}: {data[:200].hex()}")
            raise
