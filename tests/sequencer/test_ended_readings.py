"""Clients of a session that is retired, and of a view that is dropped, learn of it at once: nothing
else happens to what they have opened.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from samelog import Publisher
from samelog.admin.requests import (
    CreateTopic,
    CreateView,
    DeleteTopic,
    FinalizeUpgrade,
    GetUpgrade,
    RetireSession,
)
from samelog.publisher.errors import NotMerged
from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.admin.schemas import create_view, delete_topic_or_view
from samelog.sequencer.admin.sessions import retire_session
from samelog.sequencer.admin.topics import create_topic
from samelog.sequencer.admin.upgrades import finalize_upgrade, upgrade_status
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.data_groups.routing import RoutedLogs
from samelog.sequencer.node import Node
from samelog.wire.errors import FaultCode
from tests.patience import PATIENCE_S
from tests.sequencer.cluster import RunWith, leader_of, until
from tests.sequencer.test_topic_users import client_of

OWNER = "samelog://client/owner"


@pytest.mark.parametrize("ends_first", [False, True])
def test_a_connected_publisher_learns_that_it_is_retired(
    tmp_path: Path, run_with: RunWith, *, ends_first: bool
) -> None:
    """Whether or not its run is open."""

    def publisher_in(name: str, config: object) -> Publisher:
        return Publisher("t", session="p", directory=str(tmp_path / name), config=config)  # type: ignore[arg-type]

    def publish(publisher: Publisher, value: bytes) -> None:
        publisher.append(value)
        publisher.wait_merged(timeout=PATIENCE_S)

    def reason(publisher: Publisher) -> str:
        with pytest.raises(NotMerged) as raised:
            publisher.wait_merged(timeout=0.1)
        return str(raised.value)

    async def body(nodes: list[Node]) -> None:
        [node] = nodes
        config = client_of(tmp_path, node, 1)
        publisher = await asyncio.to_thread(publisher_in, "one", config)
        await asyncio.to_thread(publish, publisher, b"first")
        if ends_first:
            [run] = node.logs.machine.state.sessions.by_name["p"].runs
            node.logs.intake.end_run("p", run.run_id, {})
            await until(lambda: run.closed, "its run is closed")
        await retire_session(node, RetireSession("p", confirm="p"))
        publisher.append(b"fenced")
        async with asyncio.timeout(PATIENCE_S):
            told = ""
            while "this directory of 'p' was retired" not in told:
                told = await asyncio.to_thread(reason, publisher)
        other = await asyncio.to_thread(publisher_in, "two", config)
        await asyncio.to_thread(publish, other, b"second")
        for each in (other, publisher):
            await asyncio.to_thread(each.close)

    run_with(tmp_path, 1, body)


def test_a_nodes_own_session_is_not_retired(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        with pytest.raises(ChangeRefused, match="node rt-sequencer-0 writes session 'kafka-0'"):
            await retire_session(nodes[0], RetireSession("kafka-0", confirm="kafka-0"))

    run_with(tmp_path, 1, body)


def test_readers_of_a_view_are_woken_when_it_is_dropped(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        node = await leader_of(nodes)
        await until(lambda: not upgrade_status(node, GetUpgrade()).waits_for, "all report")
        await finalize_upgrade(node, FinalizeUpgrade())
        await create_topic(node, CreateTopic("t", 2, {}))
        await create_view(node, CreateView("v", "SELECT * FROM t WHERE _key = 'a'"), OWNER)
        source = RoutedLogs(
            node.logs.source, node.logs.machine, node.data_groups, node.member.filters
        )
        faults: list[RequestRefused | None] = []
        for partition in range(2):
            stream = source.open_merged("v", None, partition)
            stream.add_listener(lambda s=stream: faults.append(s.fault))  # type: ignore[misc]
        await delete_topic_or_view(node, DeleteTopic("v", in_use=True, confirm="v"))
        await until(lambda: len(faults) == 2, "both are woken")
        assert [fault and fault.code for fault in faults] == [FaultCode.TOPIC_GONE] * 2

    run_with(tmp_path, 1, body)
