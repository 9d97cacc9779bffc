"""What a node lacks comes from the others, in streams; what is damaged on every node comes back,
batch by batch, as long as one node has it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from samelog.format.positions import SessionPosition
from samelog.replicator.pull.repair_pull import RepairPull
from samelog.sequencer.cluster.repair.merged import MergedRepair, MergedSink
from samelog.sequencer.cluster.repair.plan import PATIENCE_S as REPAIR_PATIENCE_S
from samelog.sequencer.cluster.repair.plan import Lack
from samelog.sequencer.cluster.repair.sessions import SessionRepair
from samelog.sequencer.ingest.peer_pulls import IntakeSink
from samelog.sequencer.ingest.room import Room
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.sessions import Input, OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.topics import DeleteTopicCommand
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import OsFileSystem
from samelog.store.merged.log import MergedLog
from tests.patience import PATIENCE_S
from tests.sequencer.cluster import (
    RunWith,
    Session,
    batch,
    leader_of,
    make_node,
    make_nodes,
    merged,
    offset,
    until,
)
from tests.sequencer.test_ending import TOPIC, data_group

EPOCH_AT = 12
"""Where a batch has its leader epoch, which no CRC covers."""
VALUE_AT = 100


def away_and_back(
    path: Path, count: int, while_away: Callable[[Node], None], run_with: RunWith
) -> list[Node]:
    """Merge so many records on three nodes, in several instructions; restart, one node without
    its merged log, once `while_away` was given the follower that it asks first. Returns the nodes.
    """

    async def write(nodes: list[Node]) -> None:
        session = Session("a")
        for _ in range(4):
            await session.send(nodes, batch(*(b"%0200d" % n for n in range(count // 4))))
        await until(lambda: all(offset(node) == count for node in nodes), "merged everywhere")
        for node in nodes:
            await until(lambda node=node: _checked(node) > count // 2, "agreed")  # type: ignore[misc]
            await node.raft.snapshotter.take()

    async def read() -> None:
        for node in nodes[:2]:
            await node.start()
        leader = await leader_of(nodes[:2])
        (follower,) = (node for node in nodes[:2] if node is not leader)
        while_away(follower)
        repair = nodes[2].logs.repair.merged
        tick = repair.tick
        repair.tick = lambda: tick() if _sees_both(nodes[2]) else None  # type: ignore[method-assign]
        await nodes[2].start()
        await until(lambda: offset(nodes[2]) == count, "all is copied")
        assert merged(nodes[2]) == merged(leader)
        for node in nodes:
            await node.stop()

    run_with(path, 3, write)
    nodes = make_nodes(path, 3)
    shutil.rmtree(Path(nodes[2].member.config.data) / "merged" / "t-0")
    asyncio.run(read())
    return nodes


def _sees_both(node: Node) -> bool:
    """Whether it knows whom to ask: the leader is asked second."""
    return node.raft.group.raft.leader is not None and len(node.group_replica.peers_to_ask()) == 2


def _checked(node: Node) -> int:
    (partition,) = node.logs.machine.state.partitions.by_number.values()
    return partition.checked_offset


def spoil(node: Node, position: int) -> None:
    """Change a byte of the first batch, as the disk gives it."""
    (log,) = (Path(node.member.config.data) / "merged" / "t-0").glob("*.log")
    with log.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def test_what_was_missed_comes_in_one_stream(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        await session.send(nodes, batch(b"first"))
        await until(lambda: all(offset(node) == 1 for node in nodes), "merged everywhere")
        back = next(node for node in nodes if not node.raft.group.is_leader)
        others = [node for node in nodes if node is not back]
        await back.stop()
        for number in range(60):
            await session.send(others, batch(b"%d" % number))
            await until(lambda n=number: all(offset(e) == n + 2 for e in others), "merged")  # type: ignore[misc]
        again = make_node(tmp_path, 3, nodes.index(back))
        with (  # session bytes are released: there are merged ones only
            patch.object(SessionRepair, "peer_reported", lambda self, node, places: None),
            patch.object(RepairPull, "merged", counted),
        ):
            await again.start()
            await until(lambda: offset(again) == 61, "copied")
        assert merged(again) == merged(others[0])
        await again.stop()

    original, streams = RepairPull.merged, []

    async def counted(self: RepairPull, *given: Any, **named: Any) -> bool:
        streams.append(given)
        return await original(self, *given, **named)

    run_with(tmp_path, 3, body)
    assert 1 <= len(streams) < 20  # there are 60 instructions


def test_what_a_closed_run_has_no_more_is_not_asked_for(tmp_path: Path, run_with: RunWith) -> None:
    """One node was not told of the end of a file before the run was closed."""

    async def body(nodes: list[Node]) -> None:
        session, data = Session("a"), batch(b"x")
        await session.send(nodes, data)
        leader = await leader_of(nodes)
        behind = next(node for node in nodes if node is not leader)
        (number,) = behind.logs.machine.state.sessions.inputs
        for node in (each for each in nodes if each is not behind):
            node.logs.intake.seal(number, 0, 0, len(data))
        repair = behind.logs.repair.sessions
        await until(lambda: number in repair._inputs, "it hears that others have more")
        for node in nodes:
            node.logs.intake.end_run("a", session.run_id, {("t", 0): (0, len(data))})
        closed = behind.logs.machine.state.sessions.by_name["a"].runs[0]
        await until(lambda: closed.closed and number not in repair._inputs, "it asks no more")

    with patch("samelog.sequencer.cluster.repair.sessions.PATIENCE_S", PATIENCE_S):
        run_with(tmp_path, 3, body)


def test_damaged_pieces_are_not_taken_but_come_from_another_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, run_with: RunWith
) -> None:
    with caplog.at_level("INFO"):
        away_and_back(tmp_path, 12_000, lambda asked: spoil(asked, VALUE_AT), run_with)
    assert "copying failed" in caplog.text


def test_what_no_crc_covers_is_compared_with_what_a_majority_has(
    tmp_path: Path, run_with: RunWith
) -> None:
    nodes = away_and_back(tmp_path, 12_000, lambda asked: spoil(asked, EPOCH_AT + 3), run_with)
    assert nodes[2].logs.merging.divergences == 1


def test_damage_on_all_nodes_in_different_places_costs_nothing(
    tmp_path: Path, run_with: RunWith
) -> None:
    count = 30

    async def write(nodes: list[Node]) -> None:
        session = Session("a")
        for number in range(count):
            await session.send(nodes, batch(bytes([number]) * 1_000))
            await until(lambda number=number: offset(nodes[0]) == number + 1, "merged")  # type: ignore[misc]
        await until(lambda: all(offset(node) == count for node in nodes), "merged everywhere")
        whole.append(merged(nodes[0]))
        for node in nodes:  # so that nothing is merged again from session bytes
            await node.raft.snapshotter.take()

    async def read(nodes: list[Node]) -> None:
        await until(lambda: all(offset(node) == count for node in nodes), "all is back")
        assert {merged(node) for node in nodes} == set(whole)

    whole: list[bytes] = []
    run_with(tmp_path, 3, write)
    size = len(whole[0]) // count
    logs = sorted(tmp_path.glob("*/data/merged/t-0/*.log"))
    assert len(logs) == 3
    for number, log in enumerate(logs):
        spoilt = bytearray(log.read_bytes())
        spoilt[(5 + 7 * number) * size + 100] ^= 1
        log.write_bytes(spoilt)
        (log.parent / "marks").unlink()
    run_with(tmp_path, 3, read)


def test_only_what_is_committed_and_has_room_is_taken_and_nothing_twice(tmp_path: Path) -> None:
    source, copy = (
        MergedLog.open(OsFileSystem(), tmp_path / name, topic="t", topic_id="i", partition=0)
        for name in ("source", "copy")
    )
    for number in range(4):
        source.append(bytearray(batch(b"%d" % number)), base_offset=number, leader_epoch=1)
    data = memoryview(source.read(0, 0, 1 << 20))
    size = len(data) // 4
    known = Partition(1, "i", 0, next_offset=2)
    partition = SimpleNamespace(topic="t", index=0, log=copy, fault=None)
    merging = SimpleNamespace(partitions={1: partition}, copied=lambda number: None)
    machine = SimpleNamespace(
        state=SimpleNamespace(partitions=SimpleNamespace(by_number={1: known}))
    )
    room = Room()
    room.set(3 * size, promised_bytes=3 * size, resume_at_bytes=0)
    assert room.stopped is not None, "all that is free is promised"
    room.set(2 * size, promised_bytes=size, resume_at_bytes=0)
    sink = MergedSink(machine, merging, 1, partition, room)  # type: ignore[arg-type]
    copy.append_copy(0, 0, data[:size])  # the merger was faster
    sink.on_data(0, 0, data[: 3 * size])
    assert copy.next_offset == 2
    assert sink.has_enough()
    known.next_offset = 4
    assert not sink.has_enough()
    sink.on_data(0, size, data[size : 2 * size])
    with pytest.raises(NoSpace, match="t-0: cannot copy merged bytes: No space left"):
        sink.on_data(0, 2 * size, data[2 * size :])
    room.set(4 * size, promised_bytes=size, resume_at_bytes=0)
    sink.on_data(0, 2 * size, data[2 * size :])
    assert sink.has_enough()
    assert copy.read(0, 0, 1 << 20) == data


def test_what_comes_from_another_group_is_not_given_up() -> None:
    elsewhere = SimpleNamespace(members=lambda number: [5] if number == 1 else [])
    repair = MergedRepair(
        None,  # type: ignore[arg-type]
        machine=None,  # type: ignore[arg-type]
        merging=None,  # type: ignore[arg-type]
        clock=None,  # type: ignore[arg-type]
        ask=lambda: [2],
        room=Room(),
        budget=None,  # type: ignore[arg-type]
        elsewhere=elsewhere,
    )
    for number in (1, 2):
        repair._plan.note(number, Lack(0, 9, 9), 0.0)
    for _ in range(3):
        for order in [*repair._plan.next([2], 1e9)]:
            repair._plan.ended(order.partition, 0, 0.0, failed=True)
    assert not repair.has_given_up(1)
    assert repair.has_given_up(2)


@pytest.mark.parametrize("when", ["before the pull begins", "while the peer answers"])
def test_a_pull_of_an_input_that_goes_meanwhile_ends(when: str) -> None:
    """An entry that removes the input may be applied at any moment of a pull (world 9300481117 of
    converting groups: KeyError, and the connection to the peer ended).
    """
    machine, sinks = data_group(), list[IntakeSink]()
    machine.apply(OpenRunCommand("s", "d", "i", 0, "r", None, None))
    machine.apply(OpenInputCommand("s", TOPIC, 0))
    (entry,) = machine.state.sessions.inputs.values()

    async def prepare(entry: Input) -> None:
        pass

    async def session(stream: Any, start: Any, sink: IntakeSink) -> None:
        sinks.append(sink)
        machine.apply(DeleteTopicCommand(TOPIC))
        assert sink.has_enough()

    given = SimpleNamespace(
        pulls=SimpleNamespace(get=lambda node: SimpleNamespace(session=session)),
        sessions=SimpleNamespace(
            written=lambda entry: machine.state.sessions.inputs[entry.number].place
        ),
        intake=SimpleNamespace(
            received_at={},
            stopped=None,
            prepare=prepare,
            position=lambda entry: (*machine.state.sessions.inputs[entry.number].place[1:], -1, 0),
        ),
        clock=SimpleNamespace(time=0.0),
    )
    given.clock.now = lambda: given.clock.time
    parts: Any = given
    repair = SessionRepair(
        parts.pulls,
        machine=machine,
        sessions=parts.sessions,
        intake=parts.intake,
        clock=parts.clock,
        is_up=lambda node: True,
    )

    async def body() -> None:
        repair.peer_reported(1, {entry.number: SessionPosition(entry.run, 0, 100)})
        given.clock.time += 2 * REPAIR_PATIENCE_S
        repair.tick()
        (pull,) = repair._busy.values()
        if when == "before the pull begins":
            machine.apply(DeleteTopicCommand(TOPIC))
        await pull

    asyncio.run(body())
    assert len(sinks) == (when == "while the peer answers")


def test_a_copy_of_a_partition_that_goes_before_it_begins_ends() -> None:
    partitions = {1: SimpleNamespace(log=SimpleNamespace(next_offset=0))}
    merging: Any = SimpleNamespace(partitions=partitions)
    nothing: Any = SimpleNamespace(members=lambda number: [], now=lambda: 0.0)
    repair = MergedRepair(
        nothing,
        machine=nothing,
        merging=merging,
        clock=nothing,
        ask=lambda: [2],
        room=Room(),
        budget=nothing,
        elsewhere=nothing,
    )
    repair._plan.note(1, Lack(0, 9, 9), 0.0)
    (order,) = repair._plan.next([2], 1e9)
    partitions.clear()
    asyncio.run(repair._copy(order))
    repair._plan.note(1, None, 1e9)
    assert not [*repair._plan.next([2], 1e9)]
