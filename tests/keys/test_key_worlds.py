"""Simulated worlds in which keys count once: under any faults no key is merged twice, and what is
dropped has a counterpart.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cluster_sim.first_keys import with_first_keys
from tests.cluster_sim.options import from_seed
from tests.cluster_sim.run import run_options

SHORT_S = 4.0


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize(
    "seeds",
    [
        range(1, 9),
        pytest.param(range(9, 200), marks=[pytest.mark.campaign, pytest.mark.timeout(3600)]),
    ],
    ids=["some", "many"],
)
def test_worlds_with_keys_hold(seeds: range) -> None:
    found = 0
    for seed in seeds:
        options = with_first_keys(from_seed(seed), seed)
        found += run_options(replace(options, safety_s=SHORT_S)).acknowledged
    assert found > 0
