"""Simulated worlds whose nodes check records: under any faults nothing that does not fit is merged,
what fits is, once and in order, and who wrote the rest has kept it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cluster_sim.checked import with_checks
from tests.cluster_sim.first_keys import with_first_keys
from tests.cluster_sim.options import from_seed
from tests.cluster_sim.run import run_options

SHORT_S = 4.0


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize(
    "seeds",
    [
        range(1, 7),
        pytest.param(range(7, 200), marks=[pytest.mark.campaign, pytest.mark.timeout(3600)]),
    ],
    ids=["some", "many"],
)
def test_worlds_with_checks_and_keys_that_count_once_hold(seeds: range) -> None:
    found = 0
    for seed in seeds:
        options = with_checks(with_first_keys(from_seed(seed), seed), seed)
        found += run_options(replace(options, safety_s=SHORT_S)).acknowledged
    assert found > 0


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize(
    "seeds",
    [
        range(1, 7),
        pytest.param(range(7, 200), marks=[pytest.mark.campaign, pytest.mark.timeout(3600)]),
    ],
    ids=["some", "many"],
)
def test_worlds_with_checks_hold(seeds: range) -> None:
    found = 0
    for seed in seeds:
        options = with_checks(from_seed(seed), seed)
        found += run_options(replace(options, safety_s=SHORT_S)).acknowledged
    assert found > 0
