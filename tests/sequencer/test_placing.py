"""Tasks of placement in real nodes: a group moves from member to member, whoever leads group 0."""

from __future__ import annotations

from pathlib import Path

from samelog.placement import operations
from samelog.placement.changes import AnyChange, PauseTasks, WantMembers
from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.node import Node
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.placement import ChangePlacement, PlaceTopic
from samelog.wire.errors import FaultCode
from tests.sequencer.cluster import RunWith, leader_of, until
from tests.sequencer.test_data_groups import led, make_groups


async def change(node: Node, changes: list[AnyChange]) -> None:
    """An operator's wish is proposed."""
    outcome = await node.raft.proposer.propose(ChangePlacement(-1, list(changes)))
    assert not isinstance(outcome, Rejection), outcome


def held(node: Node) -> list[int]:
    """How many replicas each member has, by the table."""
    groups = node.cluster.placement.groups.values()
    return [
        sum(member in each.members for each in groups) for member in node.cluster.members.by_number
    ]


def rests(node: Node) -> bool:
    """Whether nothing is to be done, and every group is as it shall be."""
    placement = node.cluster.placement
    whole = all(
        each.votes and each.is_whole
        for group in placement.groups.values()
        for each in group.replicas
    )
    return whole and not placement.tasks and not node.placing.needs


def has_what_the_table_says(node: Node) -> bool:
    """Whether a member runs the replicas that the table names, and has no files of others."""
    own, data = node.member.directory.record.number, Path(node.member.raft_log.directory).parent
    wanted = {
        str(number)
        for number, group in node.cluster.placement.groups.items()
        if own in group.members
    }
    files = {each.name for each in (data / "groups").glob("*")}
    return {str(each) for each in node.data_groups.replicas} == wanted == files


def test_groups_are_spread_and_a_member_that_is_drained_loses_its_own(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2], [1, 2, 0], [2, 0, 1], is_pinned=False)
        leader = await leader_of(nodes)
        await until(
            lambda: sorted(held(leader)) == [1, 2, 2, 2, 2] and rests(leader), "even copies"
        )
        own = leader.member.directory.record
        table = leader.placing.look()
        await change(leader, operations.drain(table, leader.placing.states(), own.node))
        await until(lambda: held(leader)[own.number] == 0 and rests(leader), "it is empty")
        await until(
            lambda: all(map(has_what_the_table_says, nodes)), "replicas that ended are gone"
        )
        placement = leader.cluster.placement
        assert {each.state.name for each in placement.ended} == {"DONE"}
        for group in placement.groups.values():
            assert len(group.members) == 3
            await until(
                lambda g=group: led(nodes, g.number) == [nodes[g.preferred]],  # type: ignore[misc]
                "who shall lead",
            )

    run_with(tmp_path, 5, body)


def groups_of(node: Node, name: str) -> list[int]:
    """The groups of a topic's partitions."""
    topic = node.logs.machine.state.topics.named(name)
    numbers = [] if topic is None else topic.partition_numbers
    return [node.cluster.placement.group_of(each) for each in numbers]


def test_topics_that_share_a_group_are_not_parted(tmp_path: Path, run_with: RunWith) -> None:
    """Others of their group go to one that has fewer partitions."""

    async def create(node: Node, name: str, partitions: int, beside: str = "") -> None:
        version, groups = node.cluster.placement.version, [1] * partitions
        other = beside and beside * 16
        command = PlaceTopic(version, name * 16, name, {}, 0, [], groups, other)
        outcome = await node.raft.proposer.propose(command)
        assert not isinstance(outcome, Rejection), outcome

    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2], [1, 2, 0], is_pinned=False)
        leader = await leader_of(nodes)
        await change(leader, [PauseTasks(are_paused=True)])
        await create(leader, "oo", 1)
        await create(leader, "ff", 3, "oo")
        await create(leader, "pp", 2)
        await change(leader, [PauseTasks(are_paused=False)])
        await until(lambda: groups_of(leader, "pp") == [2, 2], "the others move")
        await until(lambda: rests(leader), "rest")
        assert groups_of(leader, "oo") + groups_of(leader, "ff") == [1] * 4

    run_with(tmp_path, 3, body)


def test_a_replica_that_comes_back_waits_for_its_group(tmp_path: Path, run_with: RunWith) -> None:
    """A founder that left, and gets a replica again, does not lead a group of its own."""

    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0], [1])
        leader = await leader_of(nodes)
        for number, other in ((0, 1), (1, 0), (0, 1)):
            await change(leader, [WantMembers(1, (other,))])
            await until(
                lambda o=other: held_by(leader, 1) == [o] and rests(leader),  # type: ignore[misc]
                f"group 1 goes from {number} to {other}",
            )
            assert led(nodes, 1) == [nodes[other]]
            await until(lambda: all(map(has_what_the_table_says, nodes)), "replicas end")

    run_with(tmp_path, 3, body)


def held_by(node: Node, group: int) -> list[int]:
    """Members of a group, by the table."""
    return list(node.cluster.placement.groups[group].members)


def test_who_reads_from_a_replica_that_ends_is_sent_to_the_others(
    tmp_path: Path, run_with: RunWith
) -> None:
    """The stream is open, and nothing comes any more: without a word it would stay so."""

    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0])
        leader = await leader_of(nodes)
        version = leader.cluster.placement.version
        await leader.raft.proposer.propose(PlaceTopic(version, "a" * 32, "t", {}, 0, [], [1]))
        await until(lambda: "a" * 32 in nodes[0].cluster.topics.by_id, "the topic")
        (number,) = nodes[0].cluster.topics.by_id["a" * 32].partition_numbers
        await until(lambda: nodes[0].data_groups.parts(number) is not None, "it is open")
        source = nodes[0].data_groups.source(number)
        assert source is not None
        stream, told = source.open_merged("t", None, 0), list[RequestRefused | None]()
        stream.add_listener(lambda: told.append(stream.fault))
        await change(leader, [WantMembers(1, (1,))])
        await until(lambda: 1 not in nodes[0].data_groups.replicas, "the replica ends")
        assert [each and each.code for each in told[-1:]] == [FaultCode.NOT_LEADER]

    run_with(tmp_path, 3, body)
