"""Data groups beside group 0, in real nodes: they begin, elect, rest, wake, and begin again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec import structs

from samelog.archiver.command import ArchiveCommand
from samelog.consensus import GroupMessages, Role
from samelog.consensus.messages import PreVote
from samelog.consensus.wal import Cut
from samelog.placement.values import NewGroup
from samelog.sequencer.admin.status import own_state, trouble
from samelog.sequencer.node import Node
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.members import Member
from samelog.sequencer.state.tables.placement import MakeGroups, PlaceTopic
from samelog.sequencer.state.tables.sessions import OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.topics import AlterTopicCommand, DeleteTopicCommand
from samelog.store.disk.files import OsFileSystem
from samelog.wire.member_beats import NOT_YET
from tests.sequencer import cluster
from tests.sequencer.cluster import RunWith, leader_of, make_node, until


async def make_groups(nodes: list[Node], *groups: list[int], is_pinned: bool = True) -> None:
    """Groups on these members, the first of which is to lead: once the cluster has a feature level,
    for which all members are needed. Those that are not pinned are evened out, sooner or later.
    """
    leader = await leader_of(nodes)
    await leader.raft.proposer.until_begun()
    wanted = [NewGroup(len(members), tuple(members), members[0], is_pinned) for members in groups]
    command = MakeGroups(leader.cluster.placement.version, wanted)
    outcome = await leader.raft.proposer.propose(command)
    assert not isinstance(outcome, Rejection), outcome


def led(nodes: list[Node], group: int) -> list[Node]:
    """Who leads a data group."""
    return [
        node
        for node in nodes
        if group in node.data_groups.replicas and node.data_groups.replicas[group].raft.is_leader
    ]


def rests(nodes: list[Node], group: int) -> bool:
    """Whether all replicas of a group rest."""
    found = [node.data_groups.replicas.get(group) for node in nodes]
    return all(each is not None and each.raft.raft.rests for each in found)


def test_groups_have_leaders_of_their_own_and_rest_when_nothing_happens(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2], [1, 2], [0], [2, 0, 1])
        for group, wanted in {1: 0, 2: 1, 3: 0, 4: 2}.items():
            await until(lambda g=group, w=wanted: led(nodes, g) == [nodes[w]], "who shall lead")  # type: ignore[misc]
        assert sorted(nodes[0].data_groups.replicas) == [1, 3, 4]
        await until(lambda: rests(nodes, 1) and rests(nodes[1:], 2), "rest")
        terms = [node.data_groups.replicas[1].raft.raft.term for node in nodes]
        await asyncio.sleep(0)
        event = RecordEvent(1, "test", "something happens")
        await nodes[1].data_groups.replicas[1].group_replica.raft.proposer.propose(event)
        for node in nodes:
            state = node.data_groups.replicas[1].group_replica.logs.machine.state
            await until(lambda s=state: s.events.remembered[-1:] == [event], "the event everywhere")  # type: ignore[misc]
            assert not node.logs.machine.state.events.remembered
        await until(lambda: rests(nodes, 1), "rest again")
        assert [node.data_groups.replicas[1].raft.raft.term for node in nodes] == terms

    run_with(tmp_path, 3, body)


def test_a_replica_that_no_member_can_let_in_names_its_remedy(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0], [0, 1, 2])
        await until(lambda: led(nodes, 1) == [nodes[0]], "leads")
        await until(lambda: led(nodes, 2) == [nodes[0]], "leads")
        nodes[0].data_groups.is_suspect()
        replica = nodes[0].data_groups.replicas[1]
        await until(lambda: replica.raft.raft.leader is None, "leads no more")
        await until(lambda: "samelog recover group 1" in own_state(nodes[0]).detail, "says so")
        await until(lambda: len(led(nodes[1:], 2)) == 1, "another one leads the group of three")
        known = nodes[0].data_groups.replicas[2]
        await until(lambda: known.raft.raft.leader is not None, "follows")
        assert not any("recover" in text for text in known.troubles)

    run_with(tmp_path, 3, body)


def test_a_silent_member_wakes_what_rests_with_it(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2], [1, 2, 0])
        await until(lambda: led(nodes, 1) == [nodes[0]] and rests(nodes, 1), "rest")
        await until(lambda: led(nodes, 2) == [nodes[1]] and rests(nodes, 2), "rest")
        await nodes[0].stop()
        others = nodes[1:]
        await until(lambda: len(led(others, 1)) == 1, "another leader")
        assert led(others, 2) == [nodes[1]]
        nodes[0] = make_node(tmp_path, 3, 0)
        await nodes[0].start()
        await until(lambda: led(nodes, 1) == [nodes[0]], "leadership comes back")
        await until(lambda: rests(nodes, 1) and rests(nodes, 2), "rest with it")
        assert nodes[0].data_groups.replicas[2].raft.raft.role is Role.FOLLOWER

    run_with(tmp_path, 3, body)


@pytest.mark.usefixtures("short_linger")
def test_what_ended_says_nothing_of_the_replica_that_came_in_its_place(
    tmp_path: Path, run_with: RunWith
) -> None:
    """Something of it may be under way still, and its core never rests again."""

    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: not works(nodes, 1), "all rest")
        for node in nodes:
            ended: Any = SimpleNamespace(number=1, raft=SimpleNamespace(halted="", raft=Mock()))
            ended.raft.raft.rests, ended.raft.raft.term = False, 0
            node.data_groups.moved(ended)
        assert not works(nodes, 1)
        await nodes[0].stop()
        await until(lambda: len(led(nodes[1:], 1)) == 1, "its silence is noticed")

    run_with(tmp_path, 3, body)


def works(nodes: list[Node], group: int) -> bool:
    """Whether any replica of a group is not there yet, or has anything running."""
    found = [node.data_groups.replicas.get(group) for node in nodes]
    return any(group in node.data_groups.working for node in nodes) or any(
        each is None or not each.group_replica.rests for each in found
    )


async def place(node: Node, *groups: int, **settings: str) -> None:
    """A topic in these groups."""
    since = node.cluster.placement.version
    command = PlaceTopic(since, "f" * 32, "placed", settings, 1, [], list(groups))
    outcome = await node.raft.proposer.propose(command)
    assert not isinstance(outcome, Rejection), outcome


@pytest.mark.usefixtures("short_linger")
def test_groups_without_work_run_nothing_and_begin_again(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2], [0, 1, 2])
        await until(lambda: not works(nodes, 1) and not works(nodes, 2), "all rest")
        await place(nodes[0], 1)
        state = nodes[2].data_groups.replicas[1].group_replica.logs.machine.state
        await until(lambda: "f" * 32 in state.topics.by_id, "the topic in its group")
        assert not works(nodes, 2), "it is not concerned"
        await until(lambda: not works(nodes, 1), "all rest again")
        settings = AlterTopicCommand("f" * 32, {"retention.ms": "1000"}, [])
        await nodes[0].raft.proposer.propose(settings)
        await until(
            lambda: state.topics.by_id["f" * 32].settings == {"retention.ms": "1000"},
            "the settings",
        )
        await nodes[0].raft.proposer.propose(DeleteTopicCommand("f" * 32))
        await until(
            lambda: not works(nodes, 2) and not any(1 in n.data_groups.replicas for n in nodes),
            "the group that had it ends, and the other one rests",
        )

    run_with(tmp_path, 3, body)


@pytest.mark.usefixtures("short_linger")
def test_a_group_rests_without_a_member_that_is_away_until_it_comes_back(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: led(nodes, 1) == [nodes[0]] and rests(nodes, 1), "rest")
        await nodes[2].stop()
        there = nodes[:2]
        event = RecordEvent(1, "test", "it misses this")
        await nodes[1].data_groups.replicas[1].group_replica.raft.proposer.propose(event)
        await until(lambda: rests(there, 1) and not works(there, 1), "rest without it")
        nodes[2] = make_node(tmp_path, 3, 2)
        await nodes[2].start()
        await until(lambda: 1 in nodes[2].data_groups.replicas, "it is back")
        state = nodes[2].data_groups.replicas[1].group_replica.logs.machine.state
        await until(lambda: state.events.remembered[-1:] == [event], "it has everything")
        await until(lambda: rests(nodes, 1) and not works(nodes, 1), "rest with it")

    run_with(tmp_path, 3, body)


def spoil(node: Node, group: int) -> None:
    """Nobody can read any more which replica of the group a node had."""
    path = Path(node.member.raft_log.directory, str(group), "replica.json")
    path.write_bytes(b"damaged")


def test_a_replica_that_cannot_begin_is_shown(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2], [0, 1, 2])
        await until(lambda: rests(nodes, 1) and rests(nodes, 2), "rest")
        await nodes[2].stop()
        spoil(nodes[2], 1)
        nodes[2] = make_node(tmp_path, 3, 2)
        await nodes[2].start()
        await until(lambda: 2 in nodes[2].data_groups.replicas, "the other group")
        assert nodes[2].data_groups.damaged_replicas == 1
        assert "the replica of group 1 cannot begin" in trouble(nodes[2])
        assert "replica.json" in trouble(nodes[2])
        presence = nodes[0].peers.presence
        await until(lambda: "group 1" in presence.said(2, 0.0)[0].detail, "the others know")

    run_with(tmp_path, 3, body)


def roll_back(node: Node, key: tuple[int, int]) -> None:
    """The disk of a stopped node loses the newest entry of one replica, and nothing else."""
    known = node.member.raft_log
    log = MemberLog.open(OsFileSystem(), known.directory, cluster=known.cluster, node=known.node)
    group = log.group(key)
    last = group.entries[-1].index
    state = group.hard_state
    log.write(group, [Cut(last), structs.replace(state, commit=min(state.commit, last - 1))])
    log.sync()
    log.close()


def test_a_member_that_forgot_in_one_group_is_suspect_in_all(
    tmp_path: Path, run_with: RunWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "SNAPSHOT_INTERVAL_S", 3600.0)

    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2], [0, 1, 2])
        for group in (1, 2):
            await until(lambda g=group: led(nodes, g) == [nodes[0]], "who shall lead")  # type: ignore[misc]
        proposer = nodes[0].data_groups.replicas[1].group_replica.raft.proposer
        await proposer.propose(RecordEvent(1, "test", "something happens"))

        def acknowledged() -> bool:
            rafts = [node.data_groups.replicas[1].raft.raft for node in led(nodes[:2], 1)]
            known = [(raft.progress(2), raft.last_index) for raft in rafts]
            return any(each is not None and each.match == last for each, last in known)

        await until(acknowledged, "all is acknowledged")
        await nodes[2].stop()
        roll_back(nodes[2], (1, nodes[2].data_groups.replicas[1].replica))
        nodes[2] = make_node(tmp_path, 3, 2)
        record = nodes[2].member.directory.record
        before = record.suspicions.times
        await nodes[2].start()
        directory = nodes[2].member.directory
        await until(lambda: directory.record.suspicions.times == before + 1, "suspect")

        def counts() -> list[bool]:
            replicas = nodes[2].data_groups.replicas
            return [replicas[group].raft.raft.may_vote for group in (1, 2) if group in replicas]

        await until(lambda: counts() == [True, True], "it counts again, in both groups")
        assert directory.record.suspicions.times == before + 1

    run_with(tmp_path, 3, body)


def test_a_group_that_cannot_be_is_refused(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0])
        proposer, version = nodes[0].raft.proposer, nodes[0].cluster.placement.version
        for members, preferred in (([], 0), ([0, 0], 0), ([7], 7), ([0], 1)):
            command = MakeGroups(version, [NewGroup(1, tuple(members), preferred)])
            outcome = await proposer.propose(command)
            assert isinstance(outcome, Rejection)
            assert outcome.code == "INVALID_GROUP"
        outcome = await proposer.propose(MakeGroups(version - 1, [NewGroup(1, (0,), 0)]))
        assert isinstance(outcome, Rejection)
        assert outcome.code == "PLACEMENT_MOVED"
        assert list(nodes[0].cluster.placement.groups) == [1]

    run_with(tmp_path, 1, body)


def test_a_replica_that_is_woken_says_so(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: rests(nodes, 1), "rest")
        groups = nodes[1].data_groups
        groups.replicas[1].raft.peer_restarted(2)
        assert groups.replicas[1].raft.raft.next_deadline() < float("inf")
        assert groups.quiet._beats.heard(1) == NOT_YET, "beats do not speak for it any more"
        await until(lambda: not rests(nodes, 1), "the leader hears of it")
        await until(lambda: rests(nodes, 1), "rest again")

    run_with(tmp_path, 3, body)


def test_what_is_for_another_replica_is_not_heard(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: led(nodes, 1) == [nodes[0]] and rests(nodes, 1), "rest")
        groups, raft = nodes[1].data_groups, nodes[1].data_groups.replicas[1].raft.raft
        own, other = (groups.replicas[1].sender.replica(number) for number in (1, 2))
        message = PreVote(raft.term + 1, 99, 99)
        for sender, receiver in ((other, own + 7), (other + 7, own), (0, 0)):
            groups.on_raft(2, GroupMessages(1, sender, receiver, [message]))
            assert raft.rests
        groups.on_raft(2, GroupMessages(1, other, own, [message]))
        assert not raft.rests

    run_with(tmp_path, 3, body)


def test_a_replica_hears_and_speaks_under_its_own_number(tmp_path: Path, run_with: RunWith) -> None:
    """The table may give its member another one, while it still runs."""

    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: led(nodes, 1) == [nodes[0]] and rests(nodes, 1), "rest")
        groups = nodes[1].data_groups
        replica, table = groups.replicas[1], nodes[1].cluster.placement
        before, raft, other = table.groups[1], replica.raft.raft, replica.sender.replica(2)
        others = tuple(
            structs.replace(each, replica=99) if each.member == 1 else each
            for each in before.replicas
        )
        table.groups[1] = structs.replace(before, replicas=others)
        groups.on_raft(2, GroupMessages(1, other, 99, [PreVote(raft.term + 1, 99, 99)]))
        assert raft.rests, "that was for a later replica"
        groups.on_raft(2, GroupMessages(1, other, replica.replica, [PreVote(raft.term, 0, 0)]))
        assert not raft.rests
        table.groups[1] = before

    run_with(tmp_path, 3, body)


def test_group_0_changes_nothing_of_what_is_in_a_data_group() -> None:
    machine = StateMachine()
    machine.state.members.by_number[0] = Member(0, "a", "a:1", "x", voter=True)
    place = PlaceTopic(0, "id", "t", {}, 1, [NewGroup(1, (0,), 0)], [1])
    assert machine.apply(place).partition_numbers == [1]
    machine.apply(OpenRunCommand("s", "d", "i", 0, "r", None, None))
    known = machine.apply(OpenInputCommand("s", "id", 0))
    assert known.partition == 1, "a run is over once every group has closed its part"
    refused = machine.apply(ArchiveCommand(1, 5, 0, 0, 1, ""))
    assert isinstance(refused, Rejection)
    assert refused.code == "ELSEWHERE"
    machine.apply(DeleteTopicCommand("id"))
    assert not machine.state.placement.partitions


def test_limits_of_a_node_are_of_all_its_replicas(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        (node,) = nodes
        await make_groups(nodes, [0], [0])
        await until(lambda: len(node.data_groups.replicas) == 2, "begun")
        cares = [node.care, *(care for _, _, care in node.data_groups.held)]
        assert len({id(care.scrubber._pace) for care in cares}) == 1
        logs = [node.logs, *(logs for logs, _, _ in node.data_groups.held)]
        assert len({id(each.repair.merged._budget) for each in logs}) == 1
        assert len({id(each.intake.traffic) for each in logs}) == 1

    run_with(tmp_path, 1, body)


def test_a_leader_of_a_group_that_takes_nothing_in_lets_another_lead(
    tmp_path: Path, run_with: RunWith
) -> None:
    """And it is not asked to lead again, as it should, before it takes something in."""

    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: led(nodes, 1) == [nodes[0]] and rests(nodes, 1), "rest")
        full = [nodes[0].logs, nodes[0].data_groups.replicas[1].group_replica.logs]
        for logs in full:
            logs.intake.room.stop("the disk fails", for_good=True)
        proposer = nodes[0].data_groups.replicas[1].group_replica.raft.proposer
        await proposer.propose(RecordEvent(1, "test", "something happens"))
        await until(lambda: nodes[0] not in led(nodes, 1) and bool(led(nodes, 1)), "another leader")
        await until(lambda: rests(nodes, 1) and not works(nodes, 1), "it stays so")
        assert nodes[0] not in led(nodes, 1)
        for logs in full:
            logs.intake.room.stopped = None
        await proposer.propose(RecordEvent(2, "test", "something happens"))
        await until(lambda: led(nodes, 1) == [nodes[0]], "leadership comes back")

    run_with(tmp_path, 3, body)
