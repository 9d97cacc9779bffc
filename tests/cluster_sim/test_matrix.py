"""Each kind of topic, with one copy and with three, goes through all that can be done to it."""

from __future__ import annotations

import pytest

from tests.cluster_sim.kinds import KINDS_OF_TOPICS
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


@pytest.mark.usefixtures("simulates")
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("kind", KINDS_OF_TOPICS)
def test_features_combine(kind: str, copies: int) -> None:
    world = MatrixWorld(kind, copies)
    run_world(world)
    assert world.done[-1] == "produce"
    assert {*world.done} >= OPERATIONS
    assert ("recover" in world.done) is (copies > 1)
    assert ("reset" in world.done) is (kind != "transactional")
