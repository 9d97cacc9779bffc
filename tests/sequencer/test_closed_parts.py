"""Requests for a run of which a data group has closed its part, and another has yet to."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.placement.changes import WantGroup
from samelog.replicator.interfaces import OpenedInput, RequestRefused
from samelog.replicator.watchers import Watchers
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.data_groups.intake import RoutedIntake
from samelog.sequencer.node import Node
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.placement import ChangePlacement, PlaceTopic
from samelog.sequencer.state.tables.sessions import CloseRun, OpenPlacedInput, Run
from samelog.wire.errors import FaultCode
from samelog.wire.push.effects import RollByte
from samelog.wire.receiver import ResumePoint
from tests.sequencer.cluster import RunWith, Session, batch, taken, until
from tests.sequencer.test_data_groups import led, make_groups
from tests.sequencer.test_ending import (
    TOPIC,
    begin,
    close_with_parts,
    data_group,
    group_0,
    open_run,
)

FIRST, SECOND = batch(b"a"), batch(b"b")
RUN = "r" * 32


class Told:
    """What a node's intake says of the first partition."""

    def __init__(self) -> None:
        self.closed: list[dict[tuple[str, int], RollByte]] = []
        self.over: list[str] = []

    def on_progress(self, *_: Any) -> None:
        """Not looked at."""

    def on_part_closed(self, session: str, run_id: str, ends: Any) -> None:
        """A group has closed its part."""
        self.closed.append(dict(ends))

    def on_run_closed(self, session: str, run_id: str, ends: Any, parts: Any) -> None:
        """Group 0 has closed it."""
        self.over.append(run_id)


def _is_closed(node: Node, run_id: str) -> bool:
    run = node.logs.machine.state.sessions.run_of("s", run_id)
    return run is not None and run.closed


def _run(number: int) -> str:
    return RUN if not number else str(number) * 32


async def opened(intake: RoutedIntake, partition: int, run: int = 0, listener: Any = None) -> Any:
    """An input of the run at a node, as soon as that can open it: it may know nothing of it yet."""
    while True:
        try:
            return await _opened(intake, partition, run, listener)
        except RequestRefused as refused:
            if refused.code not in (FaultCode.NOT_READY, FaultCode.TIMEOUT):
                raise
            await asyncio.sleep(0.01)


async def _opened(intake: RoutedIntake, partition: int, run: int, listener: Any) -> Any:
    await intake.open_run(
        identity="samelog://publisher/x",
        session="s",
        session_id="d" * 36,
        run=run,
        run_id=_run(run),
        dedup_id=None,
        dedup_base=None,
    )
    return await intake.open_input(
        identity="samelog://publisher/x",
        session="s",
        run_id=_run(run),
        topic="placed",
        partition=partition,
        listener=listener,
    )


async def place(node: Node) -> None:
    """A topic with a partition in each of two groups; the table may move meanwhile."""
    while "f" * 32 not in node.cluster.topics.by_id:
        since = node.cluster.placement.version
        with suppress(TimeoutError):
            await node.raft.proposer.propose(
                PlaceTopic(since, "f" * 32, "placed", {}, 1, [], [1, 2])
            )


def part_of(node: Node, group: int) -> Run | None:
    """What a group knows of the run."""
    return node.data_groups.replicas[group].group_replica.logs.machine.state.sessions.run_of(
        "s", RUN
    )


@pytest.mark.parametrize(
    ("is_to_come", "code"), [(True, FaultCode.NOT_READY), (False, FaultCode.NOT_LEADER)]
)
def test_who_is_to_have_a_partition_says_so_before_it_has(
    *, is_to_come: bool, code: FaultCode
) -> None:
    """Who hears that others have it asks again much later."""
    topic = SimpleNamespace(name="placed", is_placed=True, partitions=1, partition_numbers=[4])
    placement = SimpleNamespace(group_of=lambda number: 1)
    state = SimpleNamespace(placement=placement, topics=SimpleNamespace(named=lambda name: topic))
    machine: Any = SimpleNamespace(state=state)
    groups: Any = SimpleNamespace(
        holding=lambda number: None, is_to_come=lambda number: is_to_come, holders=lambda number: []
    )

    async def check_topic(topic_id: str | None) -> None:
        """It is there."""

    async def note_input(*_: Any) -> None:
        """Group 0 has noted it."""

    cluster: Any = SimpleNamespace(
        note_input=note_input,
        open_run=None,
        open_topic=None,
        end_run=None,
        check_session=None,
        check_topic=check_topic,
        watchers=Watchers(),
    )
    intake = RoutedIntake(cluster, machine, groups, Presence(1))
    opening = intake.open_input(identity="", session="s", run_id=RUN, topic="placed", partition=0)
    with pytest.raises(RequestRefused) as caught:
        asyncio.run(opening)
    assert caught.value.code is code


class Group:
    """A data group's replica, which answers or does not."""

    number = 1
    first_input = 1 << 32

    def __init__(self) -> None:
        self.raft = SimpleNamespace(applied_index=5)
        self.machine = data_group()
        logs = SimpleNamespace(machine=self.machine, intake=self)
        self.group_replica = SimpleNamespace(logs=logs)
        self.asked = 0
        self.is_led = False

    async def open_placed(self, command: OpenPlacedInput, _listener: object) -> OpenedInput:
        """As an intake does."""
        self.asked += 1
        if not self.is_led:
            raise RequestRefused(FaultCode.NOT_READY, "no leader", "retry") from TimeoutError()
        return OpenedInput(
            input=7, topic_id=TOPIC, partitions=2, position=ResumePoint(0, 0), merged=(0, 0)
        )

    def routed(self, machine: StateMachine) -> RoutedIntake:
        """The intake of a member that has this replica only. `machine`: of group 0."""

        async def nothing(*_: object) -> None:
            """All is known."""

        async def note_input(session: str, run_id: str, *_: object) -> Run | None:
            return machine.state.sessions.run_of(session, run_id)

        cluster: Any = SimpleNamespace(
            open_run=None,
            open_topic=None,
            end_run=None,
            check_session=None,
            check_topic=nothing,
            note_input=note_input,
            watchers=Watchers(),
        )
        groups: Any = SimpleNamespace(holding=lambda _: self, is_to_come=lambda _: True)
        return RoutedIntake(cluster, machine, groups, Presence(0))


async def asked_of(intake: RoutedIntake, run: str) -> OpenedInput | str:
    """The answer to a publisher that opens the first partition in a run."""
    try:
        return await intake.open_input(
            identity="i", session="s", run_id=run, topic="t", partition=0
        )
    except RequestRefused as refused:
        return f"{refused.code.name}: {refused.message}"


def test_a_group_that_does_not_answer_holds_up_no_other_request() -> None:
    """Requests of a session are answered one after the other."""

    async def body() -> None:
        group, machine = Group(), group_0()
        intake = group.routed(machine)
        assert await asked_of(intake, "0") == "NOT_READY: no leader"
        assert await asked_of(intake, "0") == "NOT_READY: data group 1 does not answer"
        assert group.asked == 1
        group.raft.applied_index += 1
        group.is_led = True
        opened = await asked_of(intake, "0")
        assert isinstance(opened, OpenedInput)
        assert (opened.input, group.asked) == (group.first_input | 7, 2)

    asyncio.run(body())


def test_a_group_is_not_asked_before_the_turn_of_a_run() -> None:
    async def body() -> None:
        group, machine = Group(), group_0()
        group.is_led = True
        intake = group.routed(machine)
        close_with_parts(machine, 0, 1)
        open_run(machine, 1)
        told = await asked_of(intake, "1")
        assert told == "NOT_READY: run 0 of session 's' comes to this group first"
        assert not group.asked
        assert isinstance(await asked_of(intake, "0"), OpenedInput)
        begin(group.machine, 0)
        group.machine.apply(CloseRun("s", "0", 2))
        assert isinstance(await asked_of(intake, "1"), OpenedInput)

    asyncio.run(body())


def test_a_node_that_is_late_takes_nothing_for_a_part_that_is_closed(
    tmp_path: Path, run_with: RunWith
) -> None:
    """Found by benchmarks, as a refusal that ended the connection: what it was late with was
    merged, so its files were gone. It started over, and took all of it a second time.
    """

    async def body(nodes: list[Node]) -> None:
        intakes = [
            RoutedIntake(n.logs.intake, n.logs.machine, n.data_groups, n.peers.presence)
            for n in nodes
        ]
        told = Told()
        intakes[2].watchers.watch(told, "s")  # type: ignore[arg-type]
        await make_groups(nodes, [0, 1, 2], [0, 1, 2])
        await until(lambda: led(nodes, 1) == [nodes[0]] and bool(led(nodes, 2)), "led")
        await place(nodes[0])
        states = [
            node.data_groups.replicas[group].group_replica.logs.machine.state
            for node in nodes
            for group in (1, 2)
        ]
        await until(lambda: all("f" * 32 in state.topics.by_id for state in states), "the topic")
        inputs = [await opened(intake, 0) for intake in intakes]
        await opened(intakes[0], 1)
        for intake, each in zip(intakes, inputs, strict=True):
            await taken(intake.append(each.input, 0, 0, 0, FIRST))
        for intake, each in zip(intakes[:2], inputs[:2], strict=True):
            await taken(intake.append(each.input, 0, 0, len(FIRST), SECOND))
            intake.seal(each.input, 0, 0, len(FIRST + SECOND))
        end = 0, len(FIRST + SECOND)
        intakes[0].end_run("s", RUN, {("placed", 0): end, ("placed", 1): (0, 1)})

        def is_closed(node: Node) -> bool:
            known = part_of(node, 1)
            return known is not None and known.closed

        await until(lambda: is_closed(nodes[2]), "the group has closed its part")
        log = nodes[2].data_groups.replicas[1].group_replica.logs
        number = inputs[2].input & 0xFFFFFFFF
        await until(lambda: log.sessions.opened[number].runs() == [], "its files are gone")
        assert told.closed == [{("placed", 0): end}]
        assert not part_of(nodes[0], 2).closed  # type: ignore[union-attr]
        again = await opened(intakes[2], 0)
        assert again.end == end
        await asyncio.sleep(0)
        assert log.sessions.opened[number].runs() == [], "nothing restarts"

    run_with(tmp_path, 3, body)


def test_a_run_that_was_over_before_its_partition_moved_is_let_go(
    tmp_path: Path, run_with: RunWith
) -> None:
    """The group that it came to knows only of a later run of the session."""

    async def body(nodes: list[Node]) -> None:
        [node] = nodes
        intake = RoutedIntake(
            node.logs.intake, node.logs.machine, node.data_groups, node.peers.presence
        )
        await make_groups(nodes, [0], [0])
        await until(lambda: bool(led(nodes, 1) and led(nodes, 2)), "led")
        await place(node)
        [number, _] = node.cluster.topics.by_id["f" * 32].partition_numbers
        for run, data in enumerate((FIRST, SECOND)):
            each = await opened(intake, 0, run)
            await taken(intake.append(each.input, run, 0, 0, data))
            intake.end_run("s", _run(run), {("placed", 0): (0, len(data))})
            await until(partial(_is_closed, node, _run(run)), "closed")
        await node.raft.proposer.propose(ChangePlacement(-1, [WantGroup(number, 2)]))
        table = node.cluster.placement
        await until(lambda: table.group_of(number) == 2 and not table.tasks, "it has moved")
        assert (
            node.data_groups.replicas[2].group_replica.logs.machine.state.sessions.run_of("s", RUN)
            is None
        )
        end = 0, len(FIRST)
        again = await opened(intake, 0)
        assert again.end == end
        await until(lambda: intake.is_released(again.input, 0, end), "its files may go")

    run_with(tmp_path, 1, body)


def test_a_run_that_a_snapshot_closes_is_over(tmp_path: Path, run_with: RunWith) -> None:
    """Who was told of its end tells of it no more, as if it had seen the entry."""

    async def body(nodes: list[Node]) -> None:
        [node] = nodes
        session = Session("s")
        await session.send(nodes, batch(b"a"))
        node.logs.intake.end_run("s", session.run_id, {})
        runs = node.cluster.sessions.by_name["s"].runs
        await until(lambda: runs[-1].closed, "it is closed")
        node.logs.intake.ended["s"] = session.run_id, {}
        node.raft.coordinator.closer.ended["s"] = session.run_id, {}
        node.group_replica.snapshot_installed()
        assert node.logs.intake.ended == {}
        assert node.raft.coordinator.closer.ended == {}

    run_with(tmp_path, 1, body)
