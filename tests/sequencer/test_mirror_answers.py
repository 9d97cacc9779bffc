"""What nodes answer a sidecar about a mirror whose partitions they have each one of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from samelog.admin import mirror_requests as asked
from samelog.admin.mirror_answers import MirrorRows
from samelog.admin.mirrors import joined
from samelog.config.tables.node import Grant
from samelog.format.steps import finished
from samelog.mirror.destination import LASTING
from samelog.placement.changes import SetDefaultCopies
from samelog.sequencer.admin.mirroring import mirrors
from samelog.sequencer.admin.parts import KeptElsewhere
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.placement import ChangePlacement
from tests.sequencer.cluster import RunWith, leader_of, until

SIDECAR = "samelog://mirror/x"
PUT: dict[str, Any] = {
    "topic": "eu.t",
    "partitions": 2,
    "settings": {},
    "cluster_id": "source",
    "source_topic": "t",
    "log_id": "log",
    "origins": ("source",),
    "keeps_epochs": True,
}


async def put(nodes: list[Node], **changed: Any) -> None:
    """The mirror, each of whose partitions has one copy."""
    leader = await leader_of(nodes)
    await leader.raft.proposer.until_begun()
    await leader.raft.proposer.propose(ChangePlacement(-1, [SetDefaultCopies(1)]))
    for node in nodes:
        node.member.rights.grant([Grant(identity=SIDECAR, mirror=("*",))])
    request = asked.PutMirror(**(PUT | changed))
    await mirrors.put_mirror(nodes[0], request, SIDECAR)
    await until(lambda: len({holder(nodes, n) for n in (0, 1)} - {None}) == 2, "both are made")


def holder(nodes: list[Node], index: int) -> Node | None:
    """Who has a partition of the mirror."""
    for node in nodes:
        topic = node.logs.machine.state.topics.named("eu.t")
        if topic is not None and index < topic.partitions:
            parts = node.data_groups.parts(topic.partition_numbers[index])
            if parts is not None:
                return node
    return None


async def rows(nodes: list[Node]) -> list[MirrorRows]:
    return [await mirrors.list_mirrors(node, asked.ListMirrors(), SIDECAR) for node in nodes]


def test_each_node_says_how_far_its_partitions_are(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await put(nodes)
        said = await rows(nodes)
        assert sorted(len(each.mirrors[0].partitions) for each in said) == [0, 1, 1]
        names: list[Any] = [(node, "a name") for node in nodes]
        whole, holders = joined(said[0], list(zip(names, said, strict=True)))
        (mirror,) = whole.mirrors
        assert [each.partition for each in mirror.partitions] == [0, 1]
        found: list[Any] = [holders[mirror.topic_id, index][0] for index in (0, 1)]
        assert found == [holder(nodes, index) for index in (0, 1)]

    run_with(tmp_path, 3, body)


def test_a_gap_is_left_by_a_node_that_has_the_partition(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await put(nodes)
        there = holder(nodes, 0)
        assert there is not None
        other = next(node for node in nodes if node is not there)
        gap = asked.LeaveGap("eu.t", 0, 0, 40, 40)
        with pytest.raises(KeptElsewhere) as elsewhere:
            await mirrors.leave_gap(other, gap, SIDECAR)
        assert elsewhere.value.hint == there.peers.number
        done = await mirrors.leave_gap(there, gap, SIDECAR)
        assert [each.next_offset for each in done.partitions] == [40]

    run_with(tmp_path, 3, body)


def test_a_sidecar_asks_again_while_a_partition_moves() -> None:
    assert mirrors.CODES["ON_ITS_WAY"] not in LASTING


def test_a_position_in_a_data_group_waits_for_its_records(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await put(nodes)
        there = holder(nodes, 1)
        assert there is not None
        await mirrors.leave_gap(there, asked.LeaveGap("eu.t", 1, 0, 40, 40), SIDECAR)
        position = asked.GroupPosition("g", 1, 70, -1, "", 5)
        since = asked.SchemaSince(1, (asked.VersionFrom(0, 1),))
        request = asked.FollowMirrored("eu.t", (position,), (since,))
        assert (await mirrors.follow_mirrored(there, request, SIDECAR)).own == ()
        state = there.logs.machine.state
        number = state.topics.by_name["eu.t"]
        number_of = state.topics.by_id[number].partition_numbers[1]
        assert state.groups.by_id["g"].offsets[number_of].offset == 40
        parts = there.data_groups.parts(number_of)
        assert parts is not None
        partition = parts[0].machine.state.partitions.by_number[number_of]
        assert partition.schema_since == ((0, 1),)

    run_with(tmp_path, 3, body)


def test_a_mirror_becomes_wider_and_is_promoted_in_all_groups(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await put(nodes)
        there = holder(nodes, 0)
        assert there is not None
        await mirrors.leave_gap(there, asked.LeaveGap("eu.t", 0, 0, 40, 40), SIDECAR)
        request = asked.PutMirror(**(PUT | {"partitions": 3}))
        assert (await mirrors.put_mirror(nodes[1], request, SIDECAR)).partition_count == 3
        promote = asked.PromoteTopics(("eu.t",), confirm="eu.t")
        promoted = await mirrors.promote_topics(nodes[1], promote, "admin")
        assert promoted.promoted == {"eu.t": (40, 0, 0)}
        topic = nodes[1].logs.machine.state.topics.named("eu.t")
        assert topic is not None
        info = finished(mirrors.mirror_info(nodes[1], topic))
        assert info.promoted_ms >= 0
        assert not info.is_ending

    run_with(tmp_path, 3, body)
