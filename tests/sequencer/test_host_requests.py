"""Members that share a host in real nodes: requests about all of them, and which of them vote."""

from __future__ import annotations

from collections.abc import Sequence
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
from tests.sequencer.cluster import InLoop, join, leader_of, make_node, until
from tests.sequencer.test_data_groups import make_groups
from tests.sequencer.test_placing import held, rests

HOSTS = ("a", "b", "c", "a", "c")
ON_A = ("rt-sequencer-0", "rt-sequencer-3")


def test_requests_about_a_host_are_carried_out_for_all_its_members(
    tmp_path: Path, in_loop: InLoop
) -> None:
    async def main() -> None:
        nodes = await started(tmp_path, HOSTS)
        await _check_drain(nodes)
        await _check_maintenance(nodes)
        for node in nodes:
            await node.stop()

    in_loop(main())


async def started(path: Path, hosts: Sequence[str]) -> list[Node]:
    """Nodes of a new cluster on these hosts, once all are Live."""
    nodes = [
        make_node(path, len(hosts), number, place=NodePlaces(host=host))
        for number, host in enumerate(hosts)
    ]
    for node in nodes:
        await node.start()
    await until(
        lambda: all(node.member.status.state is NodeState.LIVE for node in nodes), "all Live"
    )
    return nodes


def test_a_second_member_of_a_host_votes_once_the_first_is_gone(
    tmp_path: Path, in_loop: InLoop
) -> None:
    async def main() -> None:
        nodes = await started(tmp_path, HOSTS[:3])
        leader = await leader_of(nodes)
        first = next(node for node in nodes if node is not leader)
        host, name = first.member.config.place.host, first.member.config.name
        second = await join(tmp_path, leader, place=NodePlaces(host=host))
        number, changes = second.member.directory.record.number, leader.peers.changes
        await until(lambda: changes.stands_by(number), "it stands by")
        await until(lambda: second.member.status.state is NodeState.LIVE, "it is Live")
        assert number not in leader.raft.group.raft.voters
        await leader.peers.changes.remove(name)
        await until(lambda: number in leader.raft.group.raft.voters, "it votes")
        assert not changes.stands_by(number)
        for node in (second, *nodes):
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
        await drain_nodes(leader, DrainHost("c"))
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
