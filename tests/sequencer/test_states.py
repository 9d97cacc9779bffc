"""What a node says of another one is that one's own word, with its age."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from samelog.admin.answers import NodeInfo, NodeState
from samelog.admin.requests import GetStatus
from samelog.format.steps import finished
from samelog.sequencer.admin.status import cluster_status, not_ready, trouble
from samelog.sequencer.cluster.changes import Changes
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.node import Node
from samelog.wire.peer_messages import MemberState
from tests.sequencer.cluster import InLoop, RunWith, leader_of, make_nodes, until

SYNCING = MemberState(
    "syncing", "the node catches up with the cluster", "", "follower", 3, 7, 1, is_cut_off=False
)


def seen(by: Node, other: Node) -> NodeInfo:
    """What one node's status says of another."""
    status = finished(cluster_status(by, GetStatus()))
    return next(info for info in status.nodes if info.name == other.member.config.name)


def others(nodes: list[Node], node: Node, holds: Callable[[NodeInfo], bool]) -> bool:
    """Whether all others say so of a node."""
    return all(holds(seen(other, node)) for other in nodes if other is not node)


def test_a_member_that_said_nothing_or_is_gone_is_offline() -> None:
    presence = Presence(0)
    assert presence.said(1, 5.0)[0].state == "offline"
    presence.dialled(1)
    presence.say(1, SYNCING, 5.0)
    assert presence.said(1, 7.5) == (SYNCING, 2.5)
    presence.broke(1, 7.5)
    assert presence.said(1, 8.0)[0].state == "offline"
    presence.say(1, SYNCING, 5.0)
    presence.forget_others({0})
    assert presence.said(1, 8.0)[0].state == "offline"


def test_a_connected_node_that_catches_up_is_not_called_live(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        node = nodes[0]
        await until(
            lambda: others(nodes, node, lambda info: info.state is NodeState.LIVE), "its word"
        )
        node.member.status.state = NodeState.SYNCING
        await until(
            lambda: others(nodes, node, lambda info: info.state is NodeState.SYNCING), "its word"
        )
        assert others(nodes, node, lambda info: info.not_ready == not_ready(node) != "")
        node.member.status.state = NodeState.LIVE
        await until(
            lambda: others(nodes, node, lambda info: info.state is NodeState.LIVE), "its word"
        )

    run_with(tmp_path, 3, body)


def test_a_new_cluster_is_live_once_it_has_its_members(tmp_path: Path, in_loop: InLoop) -> None:
    """Whoever is told that a node is Live may name it, and start it again without suspicion."""

    async def body() -> None:
        (node,) = make_nodes(tmp_path, 1)
        ticks: list[int] = []
        with patch.object(Changes, "tick", lambda self: ticks.append(1)):
            await node.start()
            state = node.raft.replica.machine.state
            await until(lambda: bool(state.members.started), "all but the members is there")
            before = len(ticks)
            await until(lambda: len(ticks) > before + 1, "it had time to become Live")
            assert (node.member.status.state, state.members.by_number) == (NodeState.SYNCING, {})
        await until(lambda: node.member.status.state is NodeState.LIVE, "Live")
        assert [member.name for member in state.members.by_number.values()] == [
            node.member.config.name
        ]
        await node.stop()

    in_loop(body())


def test_roles_and_applied_entries_are_each_nodes_own(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        await until(
            lambda: others(nodes, leader, lambda i: i.role == "leader"), "the leader's role"
        )
        applied = leader.raft.replica.applied_index
        await until(
            lambda: others(nodes, leader, lambda i: i.applied_index >= applied), "what it applied"
        )

    run_with(tmp_path, 3, body)


def test_a_word_grows_old_while_its_node_is_stuck(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        stuck, other = nodes[:2]
        await until(lambda: seen(other, stuck).state is NodeState.LIVE, "its word")
        stuck._tell_state = lambda: None  # type: ignore[method-assign]
        await until(lambda: seen(other, stuck).age_s > 1.5, "an old word")
        assert seen(other, stuck).state is NodeState.LIVE
        assert seen(other, nodes[2]).age_s < seen(other, stuck).age_s
        assert seen(stuck, stuck).age_s == 0

    run_with(tmp_path, 3, body)


def test_a_node_that_counts_for_nothing_or_stops_is_not_ready(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        node = nodes[0]
        await until(lambda: not not_ready(node), "ready")
        node.raft.group.raft.may_vote = False
        assert "counts for nothing" in not_ready(node)
        node.member.status.is_stopping = True
        assert not_ready(node) == "the node stops"
        node.raft.group.raft.may_vote, node.member.status.is_stopping = True, False

    run_with(tmp_path, 3, body)


def test_a_single_voter_that_was_put_back_from_a_copy_says_what_to_do(
    tmp_path: Path, in_loop: InLoop
) -> None:
    """Nobody else can let it in, so waiting is in vain."""

    async def body() -> None:
        (node,) = make_nodes(tmp_path, 1)
        await node.start()
        await until(lambda: node.member.status.state is NodeState.LIVE, "Live")
        await node.stop()
        data = Path(node.member.config.data)
        shutil.copytree(data, data.with_name("copy"))
        shutil.rmtree(data)
        data.with_name("copy").rename(data)
        (node,) = make_nodes(tmp_path, 1)
        await node.start()
        await until(lambda: "samelog recover majority-lost" in not_ready(node), "its remedy")
        assert "nobody can let it in: samelog recover majority-lost" in trouble(node)
        await node.stop()

    in_loop(body())
