"""Nodes that hold copies of some groups are lost for good, emptied and replaced.

Invariant: at any time two of the topic's three copies are whole and can be reached.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

from samelog.admin.answers import PlacementStatus
from samelog.admin.client import ask
from samelog.admin.placement_requests import DrainNode, GetPlacement, ListTasks
from samelog.config.tables.node import NodeConfig
from tests.chaos.field import Field
from tests.chaos.load import TOPIC
from tests.chaos.nodes import ChaosNode, wait
from tests.chaos.registry import scenario

COPIES = 3
REPLACE_S = 10.0
REMADE_S = 120.0


def _impatient(field: Field) -> None:
    def edit(config: NodeConfig) -> NodeConfig:
        return replace(config, raft=replace(config.raft, replace_after_s=REPLACE_S))

    for node in field.nodes:
        node.change(edit)


def _holders(field: Field) -> tuple[str, ...]:
    """Who has the topic, the leader first."""
    found: PlacementStatus = ask(field.client, GetPlacement())
    (placed,) = [each for each in found.partitions if each.topic == TOPIC]
    return tuple(sorted(placed.replicas, key=lambda name: name != placed.leader))


def _is_settled(field: Field, without: ChaosNode) -> bool:
    """Whether the topic has all its copies, and none on a node; nothing is under way."""
    holders, tasks = _holders(field), ask(field.client, ListTasks())
    return len(holders) == COPIES and without.name not in holders and not tasks.running


def _named(field: Field, name: str) -> ChaosNode:
    return next(node for node in field.nodes if node.name == name)


@scenario("lose-a-copy", prepare=_impatient, seconds=0, nodes=5, copies=COPIES)
def lose_a_copy(field: Field) -> None:
    """The node that leads a topic of three copies on five nodes is lost with its disk; its copy is
    remade on another one. A second one is drained. The lost one comes back empty.
    """
    wait(field.random.uniform(0, 2))
    lost = _named(field, _holders(field)[0])
    lost.kill()
    shutil.rmtree(lost.data)
    os.mkdir(lost.data, 0o700)
    field.wait_for(lambda: _is_settled(field, lost), "the copy is remade", REMADE_S)
    drained = _named(field, _holders(field)[0])
    ask(field.client, DrainNode(drained.name))
    field.wait_for(lambda: _is_settled(field, drained), f"{drained.name} is empty", REMADE_S)
    lost.start()
    field.wait_live(REMADE_S)
    ask(field.client, DrainNode(drained.name, ends=True))
