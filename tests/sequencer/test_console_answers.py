"""What a real cluster answers to the console: records, merge order, elections, access, a look."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.admin.requests import GetAccess, GetElections, GetMergeOrder, PeekRecords
from samelog.http.console.look import look
from samelog.sequencer.admin import records
from samelog.sequencer.admin.access import get_access
from samelog.sequencer.admin.merge_order import merge_order
from samelog.sequencer.admin.records import peek_records
from samelog.sequencer.admin.status import elections
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.node import Node
from samelog.wire.errors import FaultCode
from tests.sequencer.cluster import RunWith, Session, batch, leader_of, offset, until
from tests.sequencer.test_data_groups import led, make_groups

VALUES = [b"1", b"2", b"3", b"4"]


def test_what_a_cluster_answers_to_its_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        node = next(each for each in nodes if each is not leader)
        await Session("s").send(nodes, batch(*VALUES[:2]))
        await Session("r").send(nodes, batch(*VALUES[2:]))
        await until(lambda: all(offset(each) == 4 for each in nodes), "all have merged")
        await check_records(node)
        monkeypatch.setattr(records, "ANSWER_BYTES_MAX", 1)
        page = await peek_records(node, PeekRecords("t"), peer(node))
        assert (len(page.records), page.next_offset) == (1, 1)
        await check_merge_order(node)
        (*_, newest) = elections(node, GetElections()).elections
        assert newest.leader == leader.member.config.name
        access = await get_access(node, GetAccess())
        assert {each.name for each in access.certificates} >= {"own", "authority"}
        assert all(each.expires_ms > newest.at_ms for each in access.certificates)
        document = await look(node, dict)
        assert document["partitions"]["t/0"]["end_offset"] == 4
        assert set(document["sessions"]) == {"s", "r"}
        assert document["cluster"][""]["leader"] == leader.member.config.name
        assert "alarms" not in document

    run_with(tmp_path, 3, body)


def test_checksums_of_copies_are_told_at_the_same_offset(tmp_path: Path, run_with: RunWith) -> None:
    """Also when a majority has agreed on them, and more was merged."""

    async def body(nodes: list[Node]) -> None:
        session = Session("s")
        await session.send(nodes, batch(*[b"v"] * 5000))
        await until(lambda: all(agreed(each) == 5000 for each in nodes), "a majority agrees")
        await session.send(nodes, batch(b"w"))
        await until(lambda: all(heard(each) == {5001} for each in nodes), "each hears of all")
        orders = [await merge_order(each, GetMergeOrder("t")) for each in nodes]
        for order in orders:
            found = {(each.offset, each.checksum) for each in order.copies}
            assert found == {(5000, order.agreed_checksum)}
        told = [{each.node for each in order.copies} for order in orders]
        assert max(map(len, told)) >= 2, "whoever leads knows what the majority said"

    run_with(tmp_path, 3, body)


def agreed(node: Node) -> int:
    """The offset whose checksum a majority agrees on, as a node knows."""
    return max(
        (each.checked_offset for each in node.logs.machine.state.partitions.by_number.values()),
        default=0,
    )


def heard(node: Node) -> set[int]:
    """Up to where the copies are durable, as a node heard."""
    return {
        end for view in node.raft.coordinator.views.values() for end in view.merged_durable.values()
    }


def peer(node: Node) -> str:
    """An identity that may read every topic."""
    return f"samelog://node/{node.member.config.name}"


async def check_records(node: Node) -> None:
    """By offset, by how many before the end, by key; only for who may read them."""
    asked = {
        PeekRecords("t"): (0, 4),
        PeekRecords("t", offset=3): (3, 4),
        PeekRecords("t", offset=99): (4, 4),
        PeekRecords("t", last=1): (3, 4),
        PeekRecords("t", limit=2): (0, 2),
        PeekRecords("t", at_ms=1 << 50): (4, 4),
    }
    for request, (first, end) in asked.items():
        page = await peek_records(node, request, peer(node))
        assert [each.offset for each in page.records] == list(range(first, end)), request
        assert (page.start_offset, page.end_offset, page.next_offset) == (0, 4, end), request
    page = await peek_records(node, PeekRecords("t"), peer(node))
    assert sorted(each.value or b"" for each in page.records) == VALUES
    assert not (await peek_records(node, PeekRecords("t", key="none"), peer(node))).records
    refused = {
        (PeekRecords("t"), "samelog://admin/x"): FaultCode.NOT_AUTHORISED,
        (PeekRecords("none"), peer(node)): FaultCode.UNKNOWN_TOPIC,
        (PeekRecords("t", 7), peer(node)): FaultCode.OUT_OF_RANGE,
        (PeekRecords("t", offset=1, last=1), peer(node)): FaultCode.OUT_OF_RANGE,
    }
    for (request, identity), code in refused.items():
        with pytest.raises(ChangeRefused) as error:
            await peek_records(node, request, identity)
        assert error.value.code is code


async def check_merge_order(node: Node) -> None:
    """All that was merged, in order; the newest only where fewer are asked for."""
    found = (await merge_order(node, GetMergeOrder("t"))).instructions
    ranges = [part for each in found for part in each.ranges]
    assert sum(part.records for part in ranges) == 4
    assert {part.session for part in ranges} == {"s", "r"}
    ends = [each.base_offset + sum(p.records for p in each.ranges) for each in found]
    assert [each.base_offset for each in found] == [0, *ends[:-1]]
    (newest,) = (await merge_order(node, GetMergeOrder("t", limit=1))).instructions
    assert newest == found[-1]


def test_what_is_wrong_with_data_groups_is_an_alarm(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        (node,) = nodes
        await make_groups(nodes, [0])
        await until(lambda: led(nodes, 1) == [node], "led")
        assert "alarms" not in await look(node, dict)
        care = node.data_groups.replicas[1].group_replica.care
        care.scrubber._damaged["x"] = "a file of group 1 is damaged"
        document = await look(node, dict)
        assert document["troubles"][""]["damage"] == "a file of group 1 is damaged"
        assert [each["name"] for each in document["alarms"].values()] == ["SamelogDamage"]

    run_with(tmp_path, 1, body)
