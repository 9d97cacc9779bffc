"""Nodes that come and go while records are written: whole nodes in one event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from samelog.admin.answers import NodeState
from samelog.config.tables.node import NodeConfig, PeerConfig
from samelog.config.values import Address, parse_address
from samelog.consensus.errors import NotLeader
from samelog.format.steps import finished
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.cluster.members import NotAMember
from samelog.sequencer.node import Node
from samelog.wire.errors import FaultCode
from tests.sequencer.cluster import (
    RunWith,
    Session,
    batch,
    join,
    leader_of,
    merged,
    offset,
    resources,
    until,
)


def is_voter(node: Node, number: int) -> bool:
    member = node.raft.replica.machine.state.members.by_number.get(number)
    return member is not None and member.voter


def test_a_node_is_added_and_another_removed_while_records_come(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        await session.send(nodes, batch(b"1"))
        leader = await leader_of(nodes)
        joined = await join(tmp_path, leader)
        try:
            assert joined.peers.number == 3
            await session.send(nodes, batch(b"2"))
            await until(lambda: is_voter(leader, 3), "the new node votes")
            everybody = [*nodes, joined]
            await session.send(everybody, batch(b"3"))
            gone = next(node for node in nodes if node is not leader)
            await leader.peers.changes.remove(gone.member.config.name)
            with pytest.raises(NotAMember, match="removed"):
                await asyncio.wait_for(gone.run_until_failure(), 10)
            await gone.stop()
            left = [node for node in everybody if node is not gone]
            await session.send(left, batch(b"4"))
            await until(lambda: all(offset(node) == 4 for node in left), "4 records everywhere")
            assert len({merged(node) for node in left}) == 1
            assert set(leader.peers.links.open) == {n.peers.number for n in left} - {
                leader.peers.number
            }
        finally:
            await joined.stop()

    run_with(tmp_path, 3, body)


def test_one_change_at_a_time_and_only_sensible_ones(tmp_path: Path, run_with: RunWith) -> None:
    async def refused(code: FaultCode, work: object) -> None:
        with pytest.raises(ChangeRefused) as caught:
            await work  # type: ignore[misc]
        assert caught.value.code is code

    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        changes = leader.peers.changes
        taken = str(leader.member.config.listen)
        await refused(FaultCode.ALREADY_EXISTS, changes.add("new", taken))
        await refused(FaultCode.NOT_A_MEMBER, changes.remove("nobody"))
        await changes.add("new", "127.0.0.1:1")
        await refused(FaultCode.CHANGE_PENDING, changes.add("newer", "127.0.0.1:2"))
        other = next(node for node in nodes if node is not leader)
        await refused(FaultCode.CHANGE_PENDING, changes.remove(other.member.config.name))
        await changes.remove("new")  # it never came up: that undoes the addition
        assert set(leader.raft.replica.machine.state.members.by_number) == {0, 1, 2}
        assert (await changes.add("newer", "127.0.0.1:2")).number == 4

    run_with(tmp_path, 3, body)


def test_leadership_moves_to_another_voter_or_it_is_said_why_not(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def three(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        other = next(node.member.config.name for node in nodes if node is not leader)
        while leader.member.config.name != other:  # on a busy machine the next one may give up
            with suppress(ChangeRefused, NotLeader):
                await leader.peers.changes.transfer(other)
            leader = await leader_of(nodes)

    async def alone(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        with pytest.raises(ChangeRefused, match="no other voter that counts is"):
            await leader.peers.changes.transfer(None)
        assert (
            await leader.peers.changes.transfer(leader.member.config.name)
            == leader.member.config.name
        )

    run_with(tmp_path / "three", 3, three)
    run_with(tmp_path / "alone", 1, alone)


def test_a_leader_that_is_removed_leads_no_more(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        old = leader = await leader_of(nodes)
        while leader is old:  # on a busy machine the next one may give up, and the old one win
            await old.peers.changes.hand_over()
            leader = await leader_of(nodes)
        await leader.peers.changes.remove(old.member.config.name)
        with pytest.raises(NotAMember):
            await asyncio.wait_for(old.run_until_failure(), 10)
        await old.stop()
        assert leader.raft.group.raft.voters == tuple(n.peers.number for n in nodes if n is not old)

    run_with(tmp_path, 3, body)


def test_the_member_list_survives_a_restart_and_a_snapshot(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def first(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        await leader.peers.changes.add("new", "127.0.0.1:1", promote=False)
        for node in nodes:
            await until(lambda node=node: node.peers.members.version == 2, "the list everywhere")  # type: ignore[misc]
            await node.raft.snapshotter.take()

    async def second(nodes: list[Node]) -> None:
        for node in nodes:
            assert node.raft.group.raft.learners == (3,)
            assert node.peers.members.name(3) == "new"

    run_with(tmp_path, 3, first)
    run_with(tmp_path, 3, second)


def test_maintenance_is_shown_and_a_leader_in_maintenance_hands_over(
    tmp_path: Path, run_with: RunWith
) -> None:
    from samelog.admin.requests import GetStatus
    from samelog.sequencer.admin.status import cluster_status
    from samelog.sequencer.state.tables.members import SetMaintenanceCommand

    async def body(nodes: list[Node]) -> None:
        old = await leader_of(nodes)
        until_ms = old.member.clock.wall_ms() + 60_000
        await old.raft.proposer.propose(SetMaintenanceCommand([old.member.config.name], until_ms))
        await until(lambda: not old.raft.group.is_leader, "another leads")
        leader = await leader_of(nodes)
        await until(lambda: bool(leader.raft.replica.machine.state.members.maintenance), "all know")
        states = {
            info.name: info.state for info in finished(cluster_status(leader, GetStatus())).nodes
        }
        assert states.pop(old.member.config.name) is NodeState.MAINTENANCE
        assert set(states.values()) == {NodeState.LIVE}

    run_with(tmp_path, 3, body)


WHERE_TO_LOOK = ("old", "new", "empty", "gone", "moved")


def looking(node: Node, old: NodeConfig, kind: str) -> NodeConfig:
    """A configuration whose peers are those of the cluster that it joined, the present members,
    nobody, nodes that were never there, or members where they are not.
    """
    address = Address("127.0.0.1", 1)
    members = node.raft.replica.machine.state.members.by_number.values()
    present = [
        PeerConfig(name=member.name, address=parse_address(member.address) or address)
        for member in members
    ]
    peers = {
        "old": list(old.peers),
        "new": present,
        "empty": [],
        "gone": [PeerConfig(name=f"gone-{number}", address=address) for number in range(4)],
        "moved": [PeerConfig(name=peer.name, address=address) for peer in old.peers],
    }
    return replace(old, peers=tuple(peers[kind]))


@pytest.mark.parametrize("promote", [True, False])
def test_a_node_that_joined_starts_again_whatever_its_peers_say(
    tmp_path: Path, promote: bool, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        leader = await leader_of(nodes)
        joined = await join(tmp_path, leader, promote=promote)
        config = joined.member.config
        if promote:
            await until(lambda: is_voter(leader, 3), "the new node votes")
        for number, kind in enumerate(WHERE_TO_LOOK, 1):
            await joined.stop()
            joined = Node(resources(looking(leader, config, kind)), bootstrap=False)
            await joined.start()
            try:
                await session.send([*nodes, joined], batch(b"1"))
                await until(lambda n=number, j=joined: offset(j) == n, f"records, peers {kind}")  # type: ignore[misc]
            except BaseException:
                await joined.stop()
                raise
        assert joined.peers.number == 3
        assert is_voter(joined, 3) is promote
        await joined.stop()

    run_with(tmp_path, 3, body)
