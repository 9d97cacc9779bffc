"""All rows that docs/reliability.md publishes, as they are in this tree and on this machine.

Invariant: what a row's code is, for its digest, is said here only.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.campaign.digest import ROOT, digest
from tests.campaign.plan import Row
from tests.chaos import scenarios
from tests.chaos.registry import SCENARIOS, Scenario

CHAOS, POWER, GROUPS, CLUSTERS, SOAK = KINDS = ("chaos", "power", "groups", "clusters", "soak")
POWER_SCENARIOS = ("power-all", "power-leader")
POWER_S = 120.0
SOAK_MINUTES, SOAK_PART_MINUTES = 120, 10
POWER_BATCH = 20
"""About so many in so many seconds."""
RUNS, POWER_LOSSES, GROUP_SEEDS, CLUSTER_SEEDS = 10, 100, 20_000, 2_000
GROUP_BATCH, CLUSTER_BATCH = 200, 10
FIRST_GROUP, FIRST_CLUSTER = 101_000, 200_000
"""Behind those of the campaigns before this one."""
AROUND_S = 30.0
"""What a run takes besides its faults: start, settle, check."""

_NODES = ("consensus", "format", "publisher", "replicator", "runtime", "sequencer", "store", "wire")
NODES = tuple(f"samelog/{name}" for name in _NODES)
GROUP_CODE = ("samelog/consensus", "samelog/format", "tests/sim", "tests/simulation")
CLUSTER_CODE = (*NODES, "samelog/archiver", "tests/cluster_sim", "tests/simulation")
_FIELD = ("checker", "field", "load", "nodes", "notes", "record", "run")
CHAOS_CODE = (
    *NODES,
    "samelog/subscriber",
    "tests/chaos/faults",
    "tests/chaos/faults/shim.c",
    *(f"tests/chaos/{name}.py" for name in _FIELD),
)
SOAK_CODE = (*CHAOS_CODE, "samelog/archiver", "tests/campaign/soak.py")
KAFKA_CODE = ("samelog/kafka", "tests/chaos/kafka_load.py")
SIDECAR_CODE = ("tests/chaos/sidecars.py", "tests/chaos/local_load.py")
MORE_CODE = {"kafka": KAFKA_CODE, "sidecars": SIDECAR_CODE}
"""By the module of the scenario."""


def all_rows() -> list[Row]:
    """Every row."""
    seen: dict[tuple[str, ...], str] = {}
    rows = [_row_of(entry, seen) for entry in SCENARIOS.values()]
    rows += [_power_row(SCENARIOS[name], seen) for name in POWER_SCENARIOS]
    rows += [_groups(), _clusters()]
    return [*rows, _soak()]


def code_of(row: Row) -> tuple[str, ...]:
    """What a row's digest is of."""
    if row.kind in {CHAOS, POWER}:
        return scenario_code(SCENARIOS[row.name])
    return {GROUPS: GROUP_CODE, CLUSTERS: CLUSTER_CODE, SOAK: SOAK_CODE}[row.kind]


def scenario_code(entry: Scenario) -> tuple[str, ...]:
    """The code that a run of a scenario depends on."""
    module = entry.inject.__module__
    own = Path(str(sys.modules[module].__file__)).relative_to(ROOT)
    return (*CHAOS_CODE, *MORE_CODE.get(module.rpartition(".")[2], ()), str(own))


def _digest_of(entry: Scenario, seen: dict[tuple[str, ...], str]) -> str:
    code = scenario_code(entry)
    return seen.setdefault(code, seen.get(code) or digest(code))


def _row_of(entry: Scenario, seen: dict[tuple[str, ...], str]) -> Row:
    return Row(
        kind=CHAOS,
        name=entry.name,
        wanted=RUNS,
        batch=1,
        takes_s=entry.seconds + AROUND_S,
        digest=_digest_of(entry, seen),
        why_not=entry.why_not(),
    )


def _power_row(entry: Scenario, seen: dict[tuple[str, ...], str]) -> Row:
    return Row(
        kind=POWER,
        name=entry.name,
        wanted=POWER_LOSSES,
        batch=POWER_BATCH,
        takes_s=POWER_S + AROUND_S,
        digest=_digest_of(entry, seen),
        first_seed=1_000,
        why_not=entry.why_not(),
    )


def _groups() -> Row:
    return Row(
        kind=GROUPS,
        name=GROUPS,
        wanted=GROUP_SEEDS,
        batch=GROUP_BATCH,
        takes_s=20.0,
        digest=digest(GROUP_CODE),
        first_seed=FIRST_GROUP,
    )


def _clusters() -> Row:
    return Row(
        kind=CLUSTERS,
        name=CLUSTERS,
        wanted=CLUSTER_SEEDS,
        batch=CLUSTER_BATCH,
        takes_s=15.0,
        digest=digest(CLUSTER_CODE),
        first_seed=FIRST_CLUSTER,
    )


def _soak() -> Row:
    return Row(
        kind=SOAK,
        name=SOAK,
        wanted=SOAK_MINUTES,
        batch=SOAK_PART_MINUTES,
        takes_s=SOAK_PART_MINUTES * 60 + AROUND_S,
        digest=digest(SOAK_CODE),
    )


del scenarios  # imported for what it registers
