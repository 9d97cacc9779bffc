"""A topic of group 0 goes to a data group, in real nodes; one of them is away meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.placement.changes import WantGroup
from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.placement import ChangePlacement
from tests.sequencer.cluster import (
    RunWith,
    Session,
    batch,
    leader_of,
    make_node,
    offset,
    until,
)
from tests.sequencer.test_data_groups import led, make_groups

RECORDS = 5
GROUP = 1


def files(data: str) -> list[Path]:
    """What a node has of the topic in group 0."""
    return [*Path(data).glob("merged/t-0"), *Path(data).glob("sessions/p/t-0*")]


def there(node: Node) -> int:
    """How far the data group's replica of a node has merged."""
    partitions = node.data_groups.replicas[GROUP].group_replica.logs.merging.partitions
    return next((each.log.next_offset for each in partitions.values()), 0)


async def leave(nodes: list[Node]) -> int:
    """Have the topic moved to the group, and wait for it: the number of the partition."""
    topic = nodes[0].logs.machine.state.topics.named("t")
    assert topic is not None
    [number] = topic.partition_numbers
    change = ChangePlacement(-1, [WantGroup(number, GROUP)])
    await nodes[0].raft.proposer.propose(change)
    for node in nodes:
        table = node.cluster.placement
        await until(lambda t=table: t.group_of(number) == GROUP and not t.tasks, "it has moved")  # type: ignore[misc]
    return number


def test_members_may_change_though_what_was_needed_has_left(
    tmp_path: Path, run_with: RunWith
) -> None:
    """It was to be on a majority, and is so: of its group."""

    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: led(nodes, GROUP) == [nodes[0]], "who shall lead")
        await Session("p").send(nodes, batch(b"a"))
        await until(lambda: all(offset(node) == 1 for node in nodes), "merged")
        leader = await leader_of(nodes)
        changes = leader.peers.changes
        changes._led_term = -1
        changes._note_what_is_needed()
        number = await leave(nodes)
        assert changes._needed[number] == 1
        await until(changes._is_free, "members may change")
        coordinator = leader.raft.coordinator
        assert not coordinator._sample_votes(number, coordinator._voting_views())

    run_with(tmp_path, 3, body)


def test_nothing_of_it_is_left_in_group_0_nor_taken_there(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: led(nodes, GROUP) == [nodes[0]], "who shall lead")
        session, values = Session("p"), [b"%d" % number for number in range(RECORDS)]
        await session.send(nodes, batch(*values))
        await until(lambda: all(offset(node) == RECORDS for node in nodes), "merged")
        directories = [node.member.directory.path for node in nodes]
        assert all(map(files, directories))
        opened = await session.open(nodes[0])
        await nodes[2].stop()
        number = await leave(nodes[:2])
        for node in nodes[:2]:  # a follower applies the opening after the leader
            await until(lambda n=node: there(n) == RECORDS, "it is in the group")  # type: ignore[misc]
        with pytest.raises(RequestRefused, match="goes to other members"):
            nodes[0].logs.intake.append(opened.input, 0, 0, len(session.data), batch(b"late"))
        assert nodes[0].cluster.partitions.by_number[number].next_offset == 0
        nodes[2] = make_node(tmp_path, 3, 2)
        await nodes[2].start()
        await until(lambda: GROUP in nodes[2].data_groups.replicas, "it begins its replica")
        await until(lambda: there(nodes[2]) == RECORDS, "it has what it missed")
        await until(lambda: not any(map(files, directories)), "nothing is left")
        assert all(number not in node.logs.merging.partitions for node in nodes)

    run_with(tmp_path, 3, body)
