"""Each kind of topic, with one copy and with three, goes through all that can be done to it."""

from __future__ import annotations

import pytest

from tests.cluster_sim.kinds import KINDS_OF_MATRICES, VIEW
from tests.cluster_sim.matrix import MatrixWorld
from tests.cluster_sim.run import run_world

OPERATIONS = {
    "create",
    "produce",
    "move",
    "drain",
    "1 copies",
    "3 copies",
    "kill the leader",
    "restart all",
    "archive",
}


OF_VIEWS = {"create", "view", "produce", "kill the leader", "restart all"}
"""A view has no partitions of its own: nothing else can be done to it."""


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("kind", KINDS_OF_MATRICES)
def test_features_combine(kind: str, copies: int) -> None:
    world = MatrixWorld(kind, copies)
    run_world(world)
    assert world.done[-1] == "produce"
    if kind == VIEW:
        assert {*world.done} == OF_VIEWS | {f"{copies} copies"}
        return
    assert {*world.done} >= OPERATIONS
    assert ("recover" in world.done) is (copies > 1)
    assert ("reset" in world.done) is (kind != "transactional")
