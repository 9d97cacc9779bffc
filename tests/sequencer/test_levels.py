"""Feature levels: raised once all members support one; who meets what it does not know halts."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, get_args

import msgspec
import pytest

from samelog.admin.answers import NodeState
from samelog.admin.requests import FinalizeUpgrade, GetStatus, GetUpgrade
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.load import load_node
from samelog.config.tables.node import NodePace
from samelog.format.errors import InvariantError
from samelog.format.steps import finished
from samelog.runtime.clock import ManualClock
from samelog.sequencer.admin.status import cluster_status, not_ready
from samelog.sequencer.admin.upgrades import finalize_upgrade, upgrade_status
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.cluster.links import Links
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.cluster.upgrade import Upgrade
from samelog.sequencer.levels import LEVELS, OtherVersion
from samelog.sequencer.node import Node
from samelog.sequencer.raft import snapshots
from samelog.sequencer.raft.replica import SnapshotBody, read_body
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand, CommandError, decode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Member, NodeStarted, RaiseLevel, SetMembers
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.wire.messages import AnyMessage
from samelog.wire.peer_messages import MemberState, Report
from tests.cluster_sim.new_kind import NEW_BUILD, OLD_BUILD, NewKind, known
from tests.sequencer.cluster import Session, batch, leader_of, merged, offset, resources, until

UNKNOWN = b"\x91\x92\xcd\x03\xe8\xa1x"
"""An entry with a command that no build knows."""


def kinds(union: Any) -> Sequence[Any]:
    return [kind for each in get_args(union) for kind in (kinds(each) or [each])]


# --- the table ----------------------------------------------------------------------------------


def test_levels_rise_and_kinds_need_levels_that_exist() -> None:
    assert list(LEVELS) == sorted(LEVELS)
    found = [kind.needs for union in (AnyCommand, AnyMessage) for kind in kinds(union)]
    assert len(found) > 60
    assert set(found) <= set(LEVELS)


def test_the_page_on_upgrades_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "upgrades.md").read_text(encoding="utf-8")
    rows = [f"| {level} | {text} |" for level, text in LEVELS.items()]
    assert "\n".join(["| level | brings |", "|--:|---|", *rows, "", "##"]) in page


# --- the state ----------------------------------------------------------------------------------


def machine(*levels: int) -> StateMachine:
    """A cluster whose members support these levels; the last is a learner; 0: never started."""
    made = StateMachine()
    made.apply(
        SetMembers(
            [
                Member(number, f"n{number}", "h:1", "x", voter=number < len(levels) - 1)
                for number in range(len(levels))
            ]
        )
    )
    for number, level in enumerate(levels):
        if level:
            made.apply(NodeStarted(f"n{number}", 1, number, f"life{number}", level))
    return made


def code(outcome: Any) -> str:
    return outcome.code if isinstance(outcome, Rejection) else ""


def test_a_level_is_raised_when_all_members_support_it_learners_too() -> None:
    made = machine(2, 2, 1)
    assert code(made.apply(RaiseLevel(0, 2, 5))) == "LEVEL_UNSUPPORTED"
    assert code(machine(2, 2, 0).apply(RaiseLevel(0, 2, 5))) == "LEVEL_UNSUPPORTED"
    assert code(StateMachine().apply(RaiseLevel(0, 1, 5))) == "LEVEL_UNSUPPORTED"
    assert made.state.members.level == 0
    assert not code(made.apply(RaiseLevel(0, 1, 5)))
    assert (made.state.members.level, made.state.events.remembered) == (1, [])
    made.apply(NodeStarted("n2", 2, 2, "life3", 2))
    assert not code(made.apply(RaiseLevel(1, 2, 6)))
    assert [event.text for event in made.state.events.remembered] == [
        "the cluster's feature level was raised from 1 to 2"
    ]
    assert StateMachine.decode(made.encode()).state == made.state


def test_a_level_never_falls_and_a_late_proposal_changes_nothing() -> None:
    made = machine(3, 3, 3)
    made.apply(RaiseLevel(0, 2, 5))
    assert code(made.apply(RaiseLevel(0, 3, 6))) == "LEVEL_MOVED"
    assert code(made.apply(RaiseLevel(2, 1, 6))) == "LEVEL_MOVED"
    assert made.state.members.level == 2


def test_a_member_that_went_back_keeps_the_level() -> None:
    made = machine(2, 2, 2)
    made.apply(RaiseLevel(0, 1, 5))
    made.apply(NodeStarted("n0", 2, 0, "older", 1))
    assert code(made.apply(RaiseLevel(1, 2, 6))) == "LEVEL_UNSUPPORTED"


def test_fields_that_are_not_known_are_not_skipped() -> None:
    with pytest.raises(CommandError, match="another version"):
        decode_commands(b"\x91\x94\x16\xa1t\x01\x02")  # AddPartitions, and one field more
    with pytest.raises(CommandError, match="another version"):
        decode_commands(UNKNOWN)


def test_a_snapshot_of_a_higher_level_is_refused() -> None:
    made = machine(2, 2)
    made.apply(RaiseLevel(0, 2, 5))
    body = msgspec.msgpack.encode(SnapshotBody(made.encode(), []))
    assert read_body(body, 2)[0].state == made.state
    with pytest.raises(OtherVersion, match="the feature level is 2, this node supports 1"):
        read_body(body, 1)


# --- what stands in the way ---------------------------------------------------------------------


def upgrade(made: StateMachine, **said: int) -> tuple[Upgrade, ManualClock]:
    """As n0, which supports level 2, sees it."""
    presence, clock = Presence(0), ManualClock()
    for name, level in said.items():
        word = MemberState("live", "", "", "follower", 1, 1, level, is_cut_off=False)
        presence.say(int(name[1:]), word, clock.now())
    return Upgrade(made, presence, clock, supported=2), clock


def test_it_is_said_who_keeps_the_cluster_from_a_level() -> None:
    found, clock = upgrade(machine(2, 2, 1, 0), n1=2, n2=1)
    status = found.status()
    assert (status.level, status.newest) == (0, 2)
    assert [member.level for member in status.members] == [2, 2, 1, 0]
    assert status.waits_for == (
        "n2 supports level 1, not 2: upgrade it",
        "n3 is not connected: wait for it, or remove it",
    )
    clock.advance(6.0)  # what was said is too old
    assert len(found.status().waits_for) == 3


def test_who_runs_an_older_build_than_recorded_or_is_not_recorded_counts() -> None:
    assert upgrade(machine(2, 2), n1=1)[0].status().waits_for == (
        "n1 supports level 1, not 2: upgrade it",
    )
    assert upgrade(machine(2, 1), n1=2)[0].status().waits_for == (
        "n1 has just started: wait until it is ready",
    )
    assert upgrade(machine(2, 2), n1=2)[0].status().waits_for == ()


def test_a_new_cluster_begins_with_what_all_support() -> None:
    assert upgrade(machine(2, 0), n1=2)[0].first_level() is None
    assert upgrade(machine(2, 2))[0].first_level() is None
    first = upgrade(machine(2, 1), n1=1)[0].first_level()
    assert first is not None
    assert (first.since, first.level) == (0, 1)
    begun = machine(2, 2)
    begun.apply(RaiseLevel(0, 1, 5))
    assert upgrade(begun, n1=2)[0].first_level() is None  # that is an operator's to do


# --- messages -----------------------------------------------------------------------------------


class NewReport(Report, frozen=True, tag=99):
    """Of a newer build."""

    needs: ClassVar[int] = 2


def test_a_message_goes_out_only_once_all_members_know_it() -> None:
    sent: list[Any] = []
    level = 1
    links = Links(*[None] * 5, told=None, level=lambda: level)  # type: ignore[arg-type]
    links.open[1] = SimpleNamespace(send=lambda message: sent.append(message) or True)  # type: ignore[assignment,func-returns-value]
    assert not links.send(1, NewReport(1))
    links.send_all(NewReport(1))
    assert links.send(1, Report(1))
    assert sent == [Report(1)]
    level = 2
    assert links.send(1, NewReport(1))
    links.send_all(NewReport(2))
    assert sent[1:] == [NewReport(1), NewReport(2)]


# --- nodes --------------------------------------------------------------------------------------


class Builds:
    """A cluster whose nodes may run different builds."""

    def __init__(self, path: Path, *levels: int) -> None:
        self.cluster = LocalCluster(str(path), ClusterOptions(nodes=len(levels)))
        self.cluster.prepare()
        self.snapshot_interval_s = 3600.0
        self.nodes = [self.make(number, level) for number, level in enumerate(levels)]

    def make(self, number: int, level: int) -> Node:
        config = load_node(self.cluster.nodes[number].config_file)
        config = replace(config, pace=NodePace(snapshot_interval_s=self.snapshot_interval_s))
        given = replace(resources(config), level=level)
        return Node(given, bootstrap=not (Path(config.data) / "node.json").exists())

    async def change(self, number: int, level: int) -> Node:
        """Stop a node, and start another build in its place."""
        await self.nodes[number].stop()
        self.nodes[number] = node = self.make(number, level)
        await node.start()
        return node

    async def live(self) -> None:
        await until(lambda: all(map(is_live, self.nodes)), "all Live")


def is_live(node: Node) -> bool:
    return node.member.status.state is NodeState.LIVE


def run(path: Path, levels: Sequence[int], body: Callable[[Builds], Awaitable[None]]) -> None:
    """Run `body` with a node of each level."""

    async def main() -> None:
        builds = Builds(path, *levels)
        for node in builds.nodes:
            await node.start()
        try:
            await builds.live()
            await body(builds)
        finally:
            for node in builds.nodes:
                if node.member.status.state is not NodeState.OFFLINE:
                    await node.stop()

    asyncio.run(main())


def test_a_rolling_upgrade(tmp_path: Path) -> None:
    """Nodes get the newer build one after the other; one goes back, and comes again."""

    async def body(builds: Builds) -> None:
        await until(lambda: levels(builds) == {OLD_BUILD}, "the first level")
        for number, build in ((0, NEW_BUILD), (1, NEW_BUILD), (0, OLD_BUILD), (2, NEW_BUILD)):
            await builds.change(number, build)
            await builds.live()
            with pytest.raises(ChangeRefused, match=r"upgrade it|just started|not connected"):
                await ask_to_finalize(builds)
            outcome = await builds.nodes[1].raft.proposer.propose(NewKind("too early"))  # type: ignore[arg-type]
            assert outcome.code == "LEVEL_TOO_LOW"
        leader = await leader_of(builds.nodes)
        with pytest.raises(InvariantError, match="needs level"):
            leader.raft.group.propose([NewKind("too early")])  # type: ignore[list-item]
        await builds.change(0, NEW_BUILD)
        await builds.live()
        raised = await finalized(builds)
        assert (raised.since, raised.level) == (OLD_BUILD, NEW_BUILD)
        assert (await finalized(builds)).since == NEW_BUILD
        await until(lambda: levels(builds) == {NEW_BUILD}, "the new level everywhere")
        await builds.nodes[1].raft.proposer.propose(NewKind("now"))  # type: ignore[arg-type]
        await until(lambda: all(events(node)[-1] == "now" for node in builds.nodes), "all used it")

    with known():
        run(tmp_path, [OLD_BUILD] * 3, body)


async def ask_to_finalize(builds: Builds) -> Any:
    return await finalize_upgrade(await leader_of(builds.nodes), FinalizeUpgrade())


async def finalized(builds: Builds) -> Any:
    """Once what members say of themselves has reached the leader."""
    leader = await leader_of(builds.nodes)
    await until(lambda: not upgrade_status(leader, GetUpgrade()).waits_for, "nobody waits")
    return await finalize_upgrade(leader, FinalizeUpgrade())


def levels(builds: Builds) -> set[int]:
    return {node.raft.replica.level for node in builds.nodes}


def events(node: Node) -> list[str]:
    return ["", *(event.text for event in node.logs.machine.state.events.remembered)]


def files(node: Node) -> dict[str, str]:
    """What a node's files hold, but for those that are of each life of it."""
    data = Path(node.member.config.data)
    found = (path for name in ("merged", "sessions", "raft") for path in (data / name).rglob("*"))
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in found
        if path.is_file() and not path.name.startswith("wal.")
    }


async def halts(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """It says why, wherever one asks, and what to do; and it stays."""
    await until(lambda: "upgrade samelog on this node" in not_ready(node), "it halts")
    own = next(
        info
        for info in finished(cluster_status(node, GetStatus())).nodes
        if info.name == node.member.config.name
    )
    assert "docs/upgrades.md" in own.not_ready
    assert "another version of samelog wrote it" in own.detail
    assert not node.raft.group.is_leader
    assert [each for each in caplog.records if "replica halted" in each.message]
    await until(lambda: node.logs.intake.stopped is not None, "it takes nothing in")
    caplog.clear()


@pytest.mark.parametrize("in_snapshot", [False, True])
def test_who_goes_back_too_late_halts_and_can_come_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, in_snapshot: bool
) -> None:
    """Whether it meets the new level in its log, or in its own snapshot."""

    async def body(builds: Builds) -> None:
        session = await published(builds)
        if in_snapshot:
            await builds.nodes[2].raft.snapshotter.take()
        await builds.nodes[2].stop()
        before = files(builds.nodes[2])
        assert any("snapshot." in path for path in before) == in_snapshot
        builds.nodes[2] = builds.make(2, OLD_BUILD)
        await builds.nodes[2].start()
        await halts(builds.nodes[2], caplog)
        assert files(builds.nodes[2]) == before
        await session.send(builds.nodes[:2], batch(b"without it"))
        await until(lambda: offset(builds.nodes[0]) == 2, "the others go on")
        await builds.change(2, NEW_BUILD)
        await builds.live()
        await until(lambda: len(set(map(merged, builds.nodes))) == 1, "it has everything")

    run(tmp_path, [NEW_BUILD] * 3, body)


def test_who_is_sent_a_snapshot_of_a_higher_level_halts_and_can_come_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was away, with the older build again, while the level was raised and the log cut."""
    monkeypatch.setattr(snapshots, "TAIL_ENTRIES", 0)

    async def body(builds: Builds) -> None:
        session = await published(builds)
        assert levels(builds) == {OLD_BUILD}
        builds.snapshot_interval_s = 0.1
        for number in range(3):
            await builds.change(number, NEW_BUILD)
            await builds.live()
        away = builds.nodes[2]
        await until(lambda: not upgrade_status(away, GetUpgrade()).waits_for, "all are recorded")
        await away.stop()
        ended = away.raft.group.raft.last_index
        leader = await leader_of(builds.nodes[:2])
        await leader.raft.proposer.propose(RaiseLevel(OLD_BUILD, NEW_BUILD, 0))
        while not all(node.raft.group.raft.first_index > ended + 1 for node in builds.nodes[:2]):
            await session.send(builds.nodes[:2], batch(b"more"))
            await asyncio.sleep(0.05)
        builds.nodes[2] = builds.make(2, OLD_BUILD)
        await builds.nodes[2].start()
        await halts(builds.nodes[2], caplog)
        assert levels(builds) == {OLD_BUILD, NEW_BUILD}
        assert offset(builds.nodes[2]) == 1
        await builds.change(2, OLD_BUILD)
        await halts(builds.nodes[2], caplog)
        await builds.change(2, NEW_BUILD)
        await builds.live()
        await until(lambda: len(set(map(merged, builds.nodes))) == 1, "it has everything")
        assert levels(builds) == {NEW_BUILD}

    run(tmp_path, [OLD_BUILD] * 3, body)


async def published(builds: Builds) -> Session:
    """A record is merged everywhere, and the first level is there."""
    await until(lambda: len(levels(builds) - {0}) == 1, "the first level")
    leader = await leader_of(builds.nodes)
    await leader.raft.proposer.propose(CreateTopicCommand("topic", "t", 1, {}, 0))
    session = Session("s")
    await session.send(builds.nodes, batch(b"one"))
    await until(lambda: {*map(offset, builds.nodes)} == {1}, "merged")
    return session


def test_an_unknown_kind_of_entry_halts_whoever_meets_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """None is skipped: with a build that knows it, all go on behind it."""

    async def body(builds: Builds) -> None:
        session = await published(builds)
        leader = await leader_of(builds.nodes)
        applied = leader.raft.replica.applied_index
        leader.raft.group.raft.propose([UNKNOWN], leader.member.clock.now())
        leader.raft.group.pump()
        for node in builds.nodes[:]:
            await until(lambda node=node: node is leader or bool(node.raft.group.halted), "halts")  # type: ignore[misc]
        await halts(leader, caplog)
        assert leader.raft.replica.applied_index < leader.raft.group.raft.last_index
        with known():
            for number in range(3):
                await builds.nodes[number].stop()
                builds.nodes[number] = builds.make(number, NEW_BUILD)
            for node in builds.nodes:
                await node.start()
            await builds.live()
            assert all(events(node)[-1] == "x" for node in builds.nodes)
            assert all(node.raft.replica.applied_index > applied for node in builds.nodes)
            await session.send(builds.nodes, batch(b"two"))
            await until(lambda: {*map(offset, builds.nodes)} == {2}, "merged")

    run(tmp_path, [OLD_BUILD] * 3, body)
