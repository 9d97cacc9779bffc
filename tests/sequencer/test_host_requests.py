"""Requests about all members of a host, as real nodes answer them."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.admin.answers import NodeState
from samelog.admin.placement_requests import DrainHost, DrainNode
from samelog.admin.requests import SetHostMaintenance, SetMaintenance
from samelog.config.tables.node import NodePlaces
from samelog.sequencer.admin.members import set_maintenance
from samelog.sequencer.admin.tasks import drain_nodes
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.node import Node
from samelog.wire.errors import FaultCode
from tests.sequencer.cluster import InLoop, leader_of, make_node, until
from tests.sequencer.test_data_groups import make_groups
from tests.sequencer.test_placing import held, rests

HOSTS = ("a", "b", "c", "a", "c")
ON_A = ("rt-sequencer-0", "rt-sequencer-3")


def test_requests_about_a_host_are_carried_out_for_all_its_members(
    tmp_path: Path, in_loop: InLoop
) -> None:
    nodes = [
        make_node(tmp_path, len(HOSTS), number, place=NodePlaces(host=host))
        for number, host in enumerate(HOSTS)
    ]

    async def main() -> None:
        for node in nodes:
            await node.start()
        await until(
            lambda: all(node.member.status.state is NodeState.LIVE for node in nodes), "all Live"
        )
        await _check_drain(nodes)
        await _check_maintenance(nodes)
        for node in nodes:
            await node.stop()

    in_loop(main())


async def _check_drain(nodes: list[Node]) -> None:
    await make_groups(nodes, [0, 1], [3, 1])
    leader = await leader_of(nodes)
    await until(lambda: rests(leader), "even copies")
    with pytest.raises(ChangeRefused, match="no node is on a host called 'x'") as refused:
        await drain_nodes(leader, DrainHost("x"))
    assert (refused.value.code, refused.value.remedy) == (
        FaultCode.NOT_A_MEMBER,
        "the hosts are a, b, c",
    )
    await drain_nodes(leader, DrainNode(ON_A[0]))
    found = await drain_nodes(leader, DrainHost("a"))
    assert tuple(found.nodes) == ON_A
    assert set(leader.cluster.placement.draining) == {0, 3}
    await until(
        lambda: [held(leader)[each] for each in (0, 3)] == [0, 0] and rests(leader), "a is empty"
    )
    with pytest.raises(ChangeRefused, match="would have too few members"):
        await drain_nodes(leader, DrainHost("b"))
    found = await drain_nodes(leader, DrainHost("a", ends=True))
    assert found.nodes == dict.fromkeys(ON_A, "may have replicas again")
    assert not leader.cluster.placement.draining


async def _check_maintenance(nodes: list[Node]) -> None:
    """Of all of its members; leadership goes to another host."""
    leader = await leader_of(nodes)
    host = leader.member.config.place.host
    names = tuple(
        node.member.config.name for node in nodes if node.member.config.place.host == host
    )
    with pytest.raises(ChangeRefused, match="no node is on a host called 'x'"):
        await set_maintenance(leader, SetHostMaintenance("x", 60))
    other = next(node for node in nodes if node.member.config.place.host != host)
    await set_maintenance(other, SetMaintenance(names[0], 60))
    answer = await set_maintenance(other, SetHostMaintenance(host, 600))
    assert answer.nodes == names
    state = other.logs.machine.state.members
    assert state.maintenance == dict.fromkeys(names, answer.until_ms)
    await until(
        lambda: not any(n.raft.group.is_leader for n in nodes if n.member.config.name in names),
        "another host leads",
    )
    ended = await set_maintenance(other, SetHostMaintenance(host, 0))
    assert (ended.until_ms, state.maintenance) == (0, {})
