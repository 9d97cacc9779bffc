"""Disasters: a lost directory, a lost majority, a Raft log that nobody goes on with."""

from __future__ import annotations

import asyncio
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from samelog.admin.answers import NodeState
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.load import load_node
from samelog.config.tables.node import NodeConfig
from samelog.consensus import NotLeader
from samelog.placement.values import NewGroup
from samelog.runtime.clock import SystemClock
from samelog.runtime.network.tls import ReloadingContext
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.cluster.members import NotAMember
from samelog.sequencer.cluster.node_dir import NOT_LET_IN, NodeDirectoryError, NodePlace
from samelog.sequencer.host import NodeResources
from samelog.sequencer.node import Node
from samelog.sequencer.raft.alone import held_by
from samelog.sequencer.raft.member_log import MemberLog
from samelog.sequencer.raft.store import RaftStore
from samelog.sequencer.recovery import NUMBERS_LEFT_OUT, begin_anew, look
from samelog.sequencer.serving import serve_node
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.placement import PlaceTopic
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.store.disk.files import OsFileSystem
from tests.patience import PATIENCE_S
from tests.sequencer.cluster import (
    InLoop,
    RunWith,
    Session,
    batch,
    join,
    leader_of,
    make_node,
    merged,
    offset,
    until,
)

FS = OsFileSystem()


def config_of(path: Path, number: int) -> NodeConfig:
    cluster = LocalCluster(str(path), ClusterOptions(nodes=3))
    cluster.prepare()
    return load_node(cluster.nodes[number].config_file)


class Served:
    """A node as a process would run it: it may begin again in another place."""

    def __init__(self, config: NodeConfig) -> None:
        self.nodes: list[Node] = []
        self.suspicions: list[str] = []
        """Of each of them, when it began."""
        self._stop = asyncio.Event()
        tls = ReloadingContext(config.tls)

        def make(place: NodePlace | None) -> Node:
            given = NodeResources(config, FS, SystemClock(), tls, random.Random())
            return Node(given, bootstrap=False, place=place)

        def on_started(node: Node, port: int) -> None:
            self.nodes.append(node)
            self.suspicions.append(node.member.directory.record.suspicion)

        self.task = asyncio.create_task(
            serve_node(
                config,
                make,
                self._stop,
                fs=FS,
                tls=tls,
                bootstrap=False,
                on_started=on_started,
            )
        )

    @property
    def newest(self) -> Node:
        """Of its lives."""
        return self.nodes[-1]

    async def stop(self) -> None:
        self._stop.set()
        await self.task


def test_a_node_that_lost_its_directory_is_let_in_and_may_be_given_a_new_number(
    tmp_path: Path,
    run_with: RunWith,
) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        await session.send(nodes, batch(b"1"))
        leader = await leader_of(nodes)
        lost = next(node for node in nodes if node is not leader)
        left = [node for node in nodes if node is not lost]
        await until(lambda: all(has_started(node, lost) for node in left), "it was known")
        await lost.stop()
        shutil.rmtree(lost.member.config.data)
        served = Served(lost.member.config)
        try:
            await let_in(served, lost, left)
            await numbered_anew(served, left, session)
        finally:
            await served.stop()

    def has_started(node: Node, other: Node) -> bool:
        return other.peers.number in node.raft.replica.machine.state.members.started

    async def let_in(served: Served, lost: Node, left: list[Node]) -> None:
        def is_live() -> bool:
            return bool(served.nodes) and served.newest.member.status.state is NodeState.LIVE

        await until(is_live, "Live with a vote, after the others said that it had another life")
        newest = served.newest
        assert newest.peers.number == lost.peers.number
        assert served.suspicions[0] == NOT_LET_IN
        assert newest.raft.group.raft.may_vote
        await until(lambda: offset(newest) == 1, "it has copied what was merged")
        assert merged(newest) == merged(left[0])
        life = newest.member.directory.record.incarnation
        assert newest.raft.replica.machine.state.members.started[newest.peers.number].let_in == life

    async def numbered_anew(served: Served, left: list[Node], session: Session) -> None:
        first = served.newest
        await asyncio.wait_for(readmit(left, first), PATIENCE_S)
        await until(lambda: served.newest.peers.number == 3, "it begins again")
        await until(lambda: all(3 in node.raft.group.raft.voters for node in left), "it votes")
        await until(lambda: served.newest.member.directory.record.may_vote, "its vote counts")
        await session.send(left, batch(b"2"))
        await until(lambda: offset(served.newest) == 2, "it has everything")
        assert merged(served.newest) == merged(left[0])

    async def readmit(left: list[Node], lost: Node) -> None:
        """By whoever leads: on a loaded machine leadership moves meanwhile."""
        while lost.peers.number in left[0].raft.replica.machine.state.members.by_number:
            changes = (await leader_of(left)).peers.changes
            with suppress(NotLeader, ChangeRefused, TimeoutError):
                await changes.readmit(lost.member.config.name)
            await asyncio.sleep(0.01)

    run_with(tmp_path, 3, body)


@pytest.mark.parametrize("kind", ["majority-lost", "soft-reset"])
def test_one_node_goes_on_alone_and_keeps_all_positions(
    tmp_path: Path, kind: str, in_loop: InLoop, run_with: RunWith
) -> None:
    session = Session("a")
    before: list[bytes] = []

    async def disaster(nodes: list[Node]) -> None:
        await session.send(nodes, batch(b"1", b"2"))
        await until(lambda: all(offset(node) == 2 for node in nodes), "2 records everywhere")
        before.append(merged(nodes[0]))
        events = CreateTopicCommand("e" * 32, "__events", 1, {}, 1)
        await nodes[0].raft.proposer.propose(events)

    async def afterwards() -> None:
        alone = make_node(tmp_path, 3, 0, bootstrap=False)
        await alone.start()
        await until(lambda: alone.member.status.state is NodeState.LIVE, "Live alone")
        assert merged(alone) == before[0]
        assert alone.raft.group.raft.voters == (0,)
        (event,) = alone.raft.replica.machine.state.events.remembered
        assert (event.kind, "may be lost" in event.text) == (kind, True)
        told = [each.number for each in alone.cluster.events.waiting if each.kind == kind]
        assert told[0] > NUMBERS_LEFT_OUT, "lost entries may have numbered others"
        await session.send([alone], batch(b"3"))  # where its input stood
        await until(lambda: offset(alone) == 3, "it goes on")
        await assert_old_nodes_are_turned_away()
        joined = await join(tmp_path, await leader_of([alone]))
        await until(
            lambda: set(alone.raft.group.raft.voters) == {0, joined.peers.number}, "two voters"
        )
        await until(lambda: offset(joined) == 3, "all is copied")
        assert merged(joined) == merged(alone)
        await joined.stop()
        await alone.stop()

    async def assert_old_nodes_are_turned_away() -> None:
        old = make_node(tmp_path, 3, 1, bootstrap=False)
        await old.start()
        with pytest.raises(NotAMember):
            await asyncio.wait_for(old.run_until_failure(), 10)
        await old.stop()

    run_with(tmp_path, 3, disaster)
    config = config_of(tmp_path, 0)
    seen = look(FS, config)
    assert ("t", 0, 2) in seen.partitions
    found, kept = begin_anew(FS, config, kind=kind, wall_ms=1)
    assert found == seen
    assert Path(kept, "0").is_dir()
    in_loop(afterwards())


def test_a_running_node_and_an_interrupted_recovery_are_refused(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        with pytest.raises(NodeDirectoryError, match="stop the node first"):
            look(FS, nodes[0].member.config)

    run_with(tmp_path, 1, body)
    config = load_node(str(tmp_path / "rt-sequencer-0" / "node.toml"))
    Path(config.data, "raft").rename(Path(config.data, "set-aside.raft.1"))
    with pytest.raises(NodeDirectoryError, match="interrupted"):
        begin_anew(FS, config, kind="soft-reset", wall_ms=2)


def test_a_node_without_its_raft_log_does_not_begin_another_one(
    tmp_path: Path, in_loop: InLoop, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await Session("s").send(nodes, batch(b"x"))
        await until(lambda: offset(nodes[0]) == 1, "merged")

    async def afterwards() -> None:
        data = Path(config_of(tmp_path, 0).data)
        (data / "raft").rename(tmp_path / "raft")
        with pytest.raises(NodeDirectoryError, match="no Raft log any more"):
            make_node(tmp_path, 3, 0)
        assert not (data / "raft").exists()
        (tmp_path / "raft").rename(data / "raft")
        node = make_node(tmp_path, 3, 0)
        await node.start()
        await node.stop()

    run_with(tmp_path, 3, body)
    in_loop(afterwards())


def test_a_node_with_data_groups_goes_on_with_them(
    tmp_path: Path, in_loop: InLoop, run_with: RunWith
) -> None:
    """One has its majority here, of another only this replica is left, of a third one nothing."""

    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        groups = [NewGroup(len(each), each, each[0]) for each in ((0,), (0, 1), (1, 2))]
        place = PlaceTopic(0, "f" * 32, "placed", {}, 1, groups, [1, 2, 3])
        outcome = await leader.raft.proposer.propose(place)
        assert not isinstance(outcome, Rejection)
        numbers[:] = outcome.partition_numbers
        own = nodes[0].data_groups

        def is_open() -> bool:
            state = {n: logs.machine.state for n, logs, _ in own.here}
            return {n for n in state if state[n].partitions.by_number} == {1, 2}

        await until(is_open, "its groups have their partitions")

    async def afterwards() -> None:
        alone = make_node(tmp_path, 3, 0, bootstrap=False)
        await alone.start()
        await until(lambda: alone.member.status.state is NodeState.LIVE, "Live alone")

        def leads() -> dict[int, bool]:
            return {n: raft.group.is_leader for n, _, raft in alone.data_groups.here}

        await until(lambda: leads() == {1: True, 2: True}, "both groups go on")
        table = alone.cluster.placement
        await until(lambda: not alone.cluster.placement.groups[2].is_recovering, "told")
        assert [each.member for each in table.groups[2].replicas] == [0]
        assert table.groups[3].members == (1, 2)
        events = {
            n: [event.kind for event in logs.machine.state.events.remembered]
            for n, logs, _ in alone.data_groups.here
        }
        assert events == {1: [], 2: ["majority-lost"]}
        held = {n: logs.machine.state.partitions.by_number for n, logs, _ in alone.data_groups.here}
        assert all(held.values())
        await alone.stop()

    numbers: list[int] = []
    run_with(tmp_path, 3, body)
    config = config_of(tmp_path, 0)
    seen = look(FS, config)
    assert [each.group for each in seen.replicas] == [1, 2]
    assert seen.partitions == (("placed", 0, 0), ("placed", 1, 0))
    assert seen.others == (3,)
    with pytest.raises(NodeDirectoryError, match="no other member has that name"):
        begin_anew(FS, config, kind="majority-lost", wall_ms=1, others=["nobody"])
    begin_anew(FS, config, kind="majority-lost", wall_ms=1)
    log = MemberLog.open(FS, f"{config.data}/raft", cluster=config.cluster, node=0)
    state = held_by(RaftStore.open(FS, log)).machine.state
    log.close()
    following = state.partitions.next_number
    assert following == numbers[-1] + 1 + NUMBERS_LEFT_OUT
    assert state.placement.next_group == 4 + NUMBERS_LEFT_OUT
    assert not state.placement.skipped.has_given("partition", numbers[-1] + 1, following)
    in_loop(afterwards())
