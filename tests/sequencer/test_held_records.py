"""Decisions about what publishers hold reach them wherever they are connected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from samelog import Publisher
from samelog.admin.answers import LostToDamage
from samelog.admin.requests import (
    ContinueSession,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    DiscardSession,
    FinalizeUpgrade,
    GetStatus,
    GetUpgrade,
    ListSessions,
)
from samelog.config.tables.client import ClientConfig
from samelog.format.steps import finished
from samelog.publisher import RecordsDamaged
from samelog.sequencer.admin.schemas import delete_topic_or_view
from samelog.sequencer.admin.sessions import (
    damaged_records,
    decide_holds,
    held_records,
    list_sessions,
    settle_holds,
)
from samelog.sequencer.admin.status import cluster_status
from samelog.sequencer.admin.topics import add_partitions, create_topic
from samelog.sequencer.admin.upgrades import finalize_upgrade, upgrade_status
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.node import Node
from samelog.wire.errors import FaultCode
from tests.patience import PATIENCE_S
from tests.sequencer.cluster import RunWith, leader_of, offset, until
from tests.sequencer.test_topic_users import client_of


async def recreate(leader: Node) -> None:
    await delete_topic_or_view(leader, DeleteTopic("t", in_use=True, confirm="t"))
    await create_topic(leader, CreateTopic("t", 1, {}))


@asynccontextmanager
async def holding(
    path: Path, nodes: list[Node], partition: int = 0
) -> AsyncIterator[tuple[Node, Publisher]]:
    """A node, and a publisher that reaches no other one and holds a record of a partition. The new
    topic has one partition.
    """
    leader = await leader_of(nodes)
    await until(lambda: not upgrade_status(leader, GetUpgrade()).waits_for, "all report")
    await finalize_upgrade(leader, FinalizeUpgrade())
    reached = next(node for node in nodes if node is not leader)
    place, config = str(path / "publishers"), client_of(path, reached)

    def publish() -> None:
        count = partition + 1
        with Publisher(
            "t", session="p", directory=place, config=config, partitions=count
        ) as publisher:
            publisher.append(b"old", partition=partition)
            publisher.wait_merged(timeout=PATIENCE_S)
        with Publisher("t", session="p", directory=place, partitions=count) as publisher:
            publisher.append(b"held", partition=partition)

    await asyncio.to_thread(publish)
    await recreate(leader)
    publisher = Publisher("t", session="p", directory=place, config=config)
    try:
        await until(lambda: all("p" in held_records(node) for node in nodes), "all nodes know it")
        yield reached, publisher
    finally:
        await asyncio.to_thread(publisher.close)


@pytest.mark.parametrize("request_type", [ContinueSession, DiscardSession])
def test_any_node_decides_for_a_publisher_at_another_one(
    tmp_path: Path,
    run_with: RunWith,
    request_type: type[ContinueSession | DiscardSession],
) -> None:
    async def body(nodes: list[Node]) -> None:
        async with holding(tmp_path, nodes) as (reached, _):
            asked = next(node for node in nodes if node is not reached)
            [session] = finished(list_sessions(asked, ListSessions())).sessions
            size = sum(part.size_bytes for part in session.held)
            assert size > 0
            decided = decide_holds(asked, make(request_type))
            assert decided.held_bytes == size
            await until(lambda: not any(map(held_records, nodes)), "nothing is held at any node")
            wanted = 1 if request_type is ContinueSession else 0
            await until(lambda: offset(asked) == wanted, "the new topic has what was continued")

    run_with(tmp_path, 3, body)


def test_records_of_missing_partitions_stay_held(tmp_path: Path, run_with: RunWith) -> None:
    """Until the partitions are added. After an answer, nothing is held any more."""

    async def body(nodes: list[Node]) -> None:
        async with holding(tmp_path, nodes, partition=2) as (reached, publisher):
            text = "holds records for partition 2 of topic 't', which has only 1 partition"
            with pytest.raises(ChangeRefused, match=text) as raised:
                await settle_holds(reached, ContinueSession("p"))
            assert raised.value.remedy.startswith("samelog topic add-partitions t 3; or drop")
            assert held_records(reached)
            await add_partitions(await leader_of(nodes), CreatePartitions("t", 3))
            decided = await settle_holds(reached, ContinueSession("p"))
            assert decided.held_bytes > 0
            assert not held_records(reached)
            await asyncio.to_thread(publisher.wait_merged, timeout=PATIENCE_S)

    run_with(tmp_path, 3, body)


def make(request_type: type[ContinueSession | DiscardSession]) -> ContinueSession | DiscardSession:
    if request_type is ContinueSession:
        return ContinueSession("p")
    return DiscardSession("p", confirm="p")


def test_a_publisher_that_leaves_is_not_decided_for(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        async with holding(tmp_path, nodes) as (_, publisher):
            await asyncio.to_thread(publisher.close)
            await until(lambda: not any(map(held_records, nodes)), "no node knows of it")
            for node in nodes:
                with pytest.raises(ChangeRefused, match="is connected to node") as away:
                    decide_holds(node, ContinueSession("p"))
                assert away.value.code is FaultCode.OUT_OF_RANGE, "no other node is asked"
                with pytest.raises(ChangeRefused, match="there is no session 'q'") as unknown:
                    decide_holds(node, ContinueSession("q"))
                assert unknown.value.code is FaultCode.UNKNOWN_SESSION

    run_with(tmp_path, 3, body)


def test_every_node_lists_what_a_publisher_lost_to_damage(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        await until(lambda: not upgrade_status(leader, GetUpgrade()).waits_for, "all report")
        await finalize_upgrade(leader, FinalizeUpgrade())
        reached, asked = (node for node in nodes if node is not leader)
        place = tmp_path / "publishers"
        publishing = lose_a_record(place, client_of(tmp_path, reached))
        publisher = await asyncio.to_thread(lambda: next(publishing))
        wanted = {"p": (LostToDamage("t", 0, 1),)}
        await until(lambda: all(damaged_records(node) == wanted for node in nodes), "all list it")
        [listed] = finished(list_sessions(asked, ListSessions())).sessions
        [shown] = finished(cluster_status(asked, GetStatus())).sessions
        assert (listed.damaged, shown.damaged) == (wanted["p"], wanted["p"])
        assert not any(map(held_records, nodes))
        with pytest.raises(ChangeRefused, match="holds no records: its publisher is connected"):
            decide_holds(reached, ContinueSession("p"))
        await asyncio.to_thread(publisher.close)
        await until(lambda: not any(map(damaged_records, nodes)), "the publisher has left")

    run_with(tmp_path, 3, body)


def lose_a_record(place: Path, config: ClientConfig) -> Iterator[Publisher]:
    """A publisher whose session's first record was damaged before it was shipped."""
    with Publisher("t", session="p", directory=place) as local:
        for value in (b"lost", b"kept"):
            local.append(value)
            local.flush()
    file = place / "p" / "t-0" / "log.0.0"
    data = bytearray(file.read_bytes())
    data[40] ^= 1
    file.write_bytes(data)
    publisher = Publisher("t", session="p", directory=place, config=config)
    with pytest.raises(RecordsDamaged):
        publisher.wait_merged(timeout=PATIENCE_S)
    yield publisher
