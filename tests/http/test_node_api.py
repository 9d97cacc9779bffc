"""What nodes of one process say of themselves and each other: no server, no sockets of HTTP's."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from samelog.admin.answers import NodeState
from samelog.admin.requests import GetRaftStatus, MoveLeadership
from samelog.config.load import load_node
from samelog.http.node_api import NodeApi
from samelog.http.routes import HttpProblem, Route
from samelog.sequencer.node import Node
from tests.config.test_kafka import load
from tests.patience import PATIENCE_S
from tests.sequencer.cluster import RunWith, Session, batch, leader_of, offset, until


def api_of(node: Node) -> NodeApi:
    api = NodeApi(node.member.config, lambda: False)
    api.node = node
    return api


def route(api: NodeApi, path: str) -> Route:
    return next(each for each in api.routes if each.operation.path == path)


async def values(api: NodeApi) -> dict[tuple[str, str], float]:
    """(name, label values) -> value."""
    families = text_string_to_metric_families(await api.metrics.text())
    samples = [sample for family in families for sample in family.samples]
    return {(s.name, ",".join(s.labels.values())): s.value for s in samples}


async def lags(api: NodeApi) -> dict[str, float]:
    """Node -> how many records it is behind, as far as one node knows."""
    found = await values(api)
    return {key[1]: lag for key, lag in found.items() if key[0] == "samelog_node_lag_records"}


def test_three_nodes_in_one_process(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        follower = next(node for node in nodes if node is not leader)
        await Session("s").send(nodes, batch(b"1", b"2"))
        await until(lambda: all(offset(node) == 2 for node in nodes), "all have merged")
        apis = {node.member.config.name: api_of(node) for node in nodes}
        found = {name: await values(api) for name, api in apis.items()}
        for name, own in found.items():
            assert own["samelog_raft_is_leader", ""] == (name == leader.member.config.name)
            peers = [key[1] for key in own if key[0] == "samelog_peer_connected"]
            assert sorted(peers) == sorted(set(apis) - {name})

        async with asyncio.timeout(PATIENCE_S):
            while await lags(apis[leader.member.config.name]) != dict.fromkeys(apis, 0):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        api = apis[follower.member.config.name]
        with pytest.raises(
            HttpProblem, match=f"does not lead: ask {leader.member.config.name}"
        ) as problem:
            await route(api, "/leadership").handle(MoveLeadership(), "")
        assert problem.value.status is HTTPStatus.MISDIRECTED_REQUEST
        assert problem.value.members["leader"] == leader.member.config.name
        members: Any = await route(apis[leader.member.config.name], "/raft").handle(
            GetRaftStatus(), ""
        )
        assert {each.progress for each in members.members} == {"", "replicate"}
        await check_one_word(apis, follower)
        check_readiness(api, follower)

    run_with(tmp_path, 3, body)


async def check_one_word(apis: dict[str, NodeApi], node: Node) -> None:
    """Metrics of all nodes say of a node what its /readyz does."""
    name = node.member.config.name
    for state, is_ready in ((NodeState.SYNCING, 0), (NodeState.LIVE, 1)):
        node.member.status.state = state
        for other, api in apis.items():
            key = ("samelog_ready", "") if other == name else ("samelog_peer_ready", name)
            async with asyncio.timeout(PATIENCE_S):
                while (await values(api))[key] != is_ready:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        assert (apis[name].not_ready() == "") == is_ready
        assert (await values(apis[name]))["samelog_node_state", state.value] == 1


def check_readiness(api: NodeApi, node: Node) -> None:
    """A node says why it is not ready."""
    assert api.not_ready() == ""
    for state in (NodeState.INITIALIZING, NodeState.SYNCING, NodeState.OFFLINE):
        node.member.status.state = state
        assert api.not_ready().startswith("the node")
    node.member.status.state = NodeState.LIVE
    node.logs.intake.room.stop("the disk is full")
    assert api.not_ready() == "it accepts no records: the disk is full"
    node.logs.intake.room.stopped = None
    assert api.not_ready() == ""
    node.raft.group.leader_lost()
    assert api.not_ready() == "no leader is known"


def test_a_process_without_a_node_is_alive_and_not_ready(tmp_path: Path) -> None:
    stopping = False
    config = load_node(load(tmp_path, ""))

    async def main() -> None:
        nonlocal stopping
        api = NodeApi(config, lambda: stopping)
        assert (await values(api))["samelog_ready", ""] == 0
        for path in ("/status", "/sessions", "/latest-position"):
            request, told = route(api, path).operation.request(), "in the cluster: samelog node add"
            with pytest.raises(HttpProblem, match=told) as problem:
                await route(api, path).handle(request, "")
            assert problem.value.status is HTTPStatus.SERVICE_UNAVAILABLE
        assert not api.may_read("samelog://client/admin")
        stopping = True
        assert api.not_ready() == "the node stops"

    asyncio.run(main())
