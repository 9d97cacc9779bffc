"""Partitions that nobody writes to cost nothing: what a node does behind a record, and what its
housekeeping does each second, takes as many calls with them as without. They have no log, no file,
no directory, and next to no memory.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tracemalloc
from pathlib import Path
from types import FrameType

from samelog.admin.requests import GetLatestPositions, GetStatus
from samelog.format.steps import finished
from samelog.sequencer.admin.status import cluster_status
from samelog.sequencer.admin.topics import latest_positions
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from tests.sequencer.cluster import RunWith, Session, batch, merged, offset, until
from tests.store.storage import open_below

IDLE = 500
RUNS = 5
"""Of which the cheapest counts: other tasks may have their turn meanwhile."""
CLOSED = 20
LOOKS = 2
"""What was made is looked at once."""


class Calls:
    """Counts calls of Python functions."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Calls:
        self._before = sys.getprofile()
        sys.setprofile(self._called)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(self._before)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += event == "call"


async def merge_one(node: Node, session: Session) -> None:
    """One more record."""
    goal = offset(node) + 1
    await session.send([node], batch(b"x"))
    await until(lambda: offset(node) == goal, "merged")


async def cost(node: Node, session: Session) -> int:
    """Calls behind one more record that is merged, of its sync and all looks at it."""
    await merge_one(node, session)
    while not node.logs.merging.partitions[1].log.dirty():  # the interval's sync was faster
        await merge_one(node, session)
    with Calls() as calls:
        await node.logs.merging.sync()
        node.tick()
        node.tick_slowly()
        node.tick_membership()
    return calls.count


async def create_idle(node: Node, partitions: int) -> None:
    """A topic that nobody writes to."""
    known = node.logs.machine.state.partitions.by_number
    goal = len(known) + partitions
    await node.raft.proposer.propose(CreateTopicCommand("f" * 32, "idle", partitions, {}, 1))
    await until(lambda: len(known) == goal, "created")


def directories(node: Node) -> list[str]:
    """Of the partitions on a node's disk."""
    return sorted(os.listdir(Path(node.member.config.data, "merged")))


def test_idle_partitions_cost_nothing(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        node, session = nodes[0], Session("s")
        alone = min([await cost(node, session) for _ in range(LOOKS + RUNS)])
        await create_idle(node, IDLE)
        beside = min([await cost(node, session) for _ in range(LOOKS + RUNS)])
        assert beside < alone + IDLE / 5  # a call for each would be five times that

    run_with(tmp_path, 1, body)


def test_idle_partitions_have_no_files_and_little_memory(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        node, session = nodes[0], Session("s")
        await cost(node, session)
        files = len(os.listdir("/proc/self/fd"))
        tracemalloc.start(1)
        await create_idle(node, IDLE)
        await node.raft.snapshotter.take()
        gc.collect()
        held_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert held_bytes / IDLE < 1024
        assert len(node.logs.merging.partitions) == 1
        assert len(os.listdir("/proc/self/fd")) <= files + 1  # a snapshot's may be open
        assert directories(node) == ["t-0"]

    run_with(tmp_path, 1, body)


def test_a_log_that_nobody_writes_to_any_more_has_no_open_file(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        node, session = nodes[0], Session("s")
        await merge_one(node, session)
        log, merging = node.logs.merging.partitions[1].log, node.logs.merging
        await until(lambda: log.durable_offset == 1 and not log.dirty(), "synced")

        name, away = os.path.join(log.path, f"{0:020d}.log"), str(tmp_path / "away")

        def rests() -> bool:
            merging.rest()
            return open_below(log.path) + open_below(away) == []

        os.rename(name, away)
        assert [rests() for _ in range(5)] == [False] * 5, "the bytes are in the open file alone"
        os.rename(away, name)
        await until(rests, "files closed")
        await merge_one(node, session)
        assert open_below(log.path)
        assert merged(node) == log.read(0, 0, 1 << 20)
        await until(lambda: log.durable_offset == 2, "synced again")

    run_with(tmp_path, 1, body)


def test_a_session_log_that_nobody_writes_to_any_more_has_no_open_file(tmp_path: Path) -> None:
    async def body(nodes: list[Node]) -> None:
        node, session = nodes[0], Session("s")
        await merge_one(node, session)
        log, sessions = next(iter(node.logs.sessions.opened.values())), node.logs.sessions

        def rests() -> bool:
            sessions.rest()
            return open_below(log.path) == []

        await until(rests, "files closed")
        await merge_one(node, session)
        assert log.read(0, 0, 0, 1 << 20) == session.data


def test_closed_sessions_have_no_open_file(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        node = nodes[0]
        for number in range(CLOSED):
            session = Session(f"s{number}")
            await merge_one(node, session)
            node.logs.intake.end_run(session.name, session.run_id, {})
        await until(lambda: not is_any_open(node), "closed")
        last = Session("last")
        await merge_one(node, last)
        below = os.path.join(node.member.config.data, "sessions")
        assert open_below(below)

        def rests() -> bool:
            node.logs.sessions.rest()
            return open_below(below) == []

        await until(rests, "files closed")
        await merge_one(node, last)
        assert open_below(below)
        await until(rests, "files closed again")
        assert offset(node) == CLOSED + 2

    run_with(tmp_path, 1, body)


def is_any_open(node: Node) -> bool:
    """Whether a session has an open run, as a node knows."""
    machine = node.logs.machine
    return any(
        machine.state.sessions.open_run_of(name) is not None
        for name in machine.state.sessions.by_name
    )


def test_looking_at_idle_partitions_opens_none(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        node = nodes[0]
        await create_idle(node, IDLE)
        status = finished(cluster_status(node, GetStatus()))
        assert {each.end_offset for each in status.partitions} == {0}
        assert len(finished(latest_positions(node, GetLatestPositions())).positions) == IDLE
        assert not node.logs.merging.partitions
        assert directories(node) == []

    run_with(tmp_path, 1, body)


def test_a_reader_of_an_idle_partition_gets_its_first_record(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        node, heard = nodes[0], list[int]()
        await create_idle(node, IDLE)
        stream = node.logs.source.open_merged("idle", None, 0)
        stream.add_listener(lambda: heard.append(stream.log.next_offset))
        assert stream.log.next_offset == 0
        assert directories(node) == []
        await Session("s", "idle").send(nodes, batch(b"x"))
        await until(lambda: 1 in heard, "told of the record")
        assert directories(node) == ["idle-0"]

    run_with(tmp_path, 1, body)


def test_a_restart_opens_what_was_written_and_only_that(tmp_path: Path, run_with: RunWith) -> None:
    async def first(nodes: list[Node]) -> None:
        node = nodes[0]
        await create_idle(node, IDLE)
        await Session("s").send(nodes, batch(b"x"))
        await until(lambda: offset(node) == 1, "merged")
        await node.raft.snapshotter.take()

    async def second(nodes: list[Node]) -> None:
        node = nodes[0]
        assert [each.topic for each in node.logs.merging.partitions.values()] == ["t"]
        assert offset(node) == 1
        await Session("s2").send(nodes, batch(b"y"))
        await until(lambda: offset(node) == 2, "goes on")

    run_with(tmp_path, 1, first)
    run_with(tmp_path, 1, second)


def test_a_log_without_its_directory_is_copied_though_nobody_writes(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def first(nodes: list[Node]) -> None:
        await Session("s").send(nodes, batch(b"x"))
        await until(lambda: all(offset(node) == 1 for node in nodes), "merged")
        for node in nodes:
            await node.raft.snapshotter.take()
        lost.append(Path(nodes[2].logs.merging.partitions[1].log.path))

    async def second(nodes: list[Node]) -> None:
        await until(lambda: offset(nodes[2]) == 1, "copied")
        assert len({merged(node) for node in nodes}) == 1

    lost: list[Path] = []
    run_with(tmp_path, 3, first)
    shutil.rmtree(lost[0])
    run_with(tmp_path, 3, second)
