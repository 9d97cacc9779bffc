"""groups that rest keep little of their Raft logs in memory: it is in their snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.consensus import Entry, Snapshot
from samelog.consensus.log import RaftLog
from samelog.runtime.at_work import AtWork
from samelog.runtime.clock import SystemClock
from samelog.sequencer.node import Node
from samelog.sequencer.raft.snapshots import FOLLOWERS_WAIT, REST_BYTES, Snapshotter, _Taken
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.events import RecordEvent
from tests.sequencer.cluster import RunWith, make_node, until
from tests.sequencer.test_data_groups import led, make_groups, rests, works

ENTRIES = 40
TEXT = "x" * (4 * REST_BYTES // ENTRIES)


async def write(node: Node) -> None:
    """Entries that take more than a log that rests may hold."""
    proposer = node.data_groups.replicas[1].group_replica.raft.proposer
    for number in range(ENTRIES):
        await proposer.propose(RecordEvent(number, "test", TEXT))


def held(node: Node) -> int:
    """Entries of the group's log in the memory of a node, and on its disk."""
    replica = node.data_groups.replicas[1]
    raft, store = replica.raft.raft, replica.group_replica.store
    return max(raft.last_index - raft.first_index + 1, len(store.entries))


@pytest.mark.usefixtures("short_linger")
def test_a_log_that_rests_is_cut_on_all_members(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: led(nodes, 1) == [nodes[0]], "led")
        await write(nodes[0])
        await until(lambda: all(held(node) < ENTRIES / 2 for node in nodes), "cut")
        await until(lambda: rests(nodes, 1) and not works(nodes, 1), "rest")
        state = nodes[2].data_groups.replicas[1].group_replica.logs.machine.state
        assert [event.at_ms for event in state.events.remembered[-ENTRIES:]] == list(range(ENTRIES))

    run_with(tmp_path, 3, body)


@pytest.mark.usefixtures("short_linger")
def test_the_end_is_kept_for_a_follower_that_is_away(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: led(nodes, 1) == [nodes[0]] and rests(nodes, 1), "rest")
        await nodes[2].stop()
        await write(nodes[0])
        there = nodes[:2]
        await until(lambda: rests(there, 1) and not works(there, 1), "rest without it")
        assert max(held(node) for node in there) >= ENTRIES
        nodes[2] = make_node(tmp_path, 3, 2)
        await nodes[2].start()
        await until(lambda: 1 in nodes[2].data_groups.replicas, "it is back")
        state = nodes[2].data_groups.replicas[1].group_replica.logs.machine.state
        await until(lambda: len(state.events.remembered) == ENTRIES, "it has everything")
        await until(lambda: all(held(node) < ENTRIES / 2 for node in nodes), "cut")

    run_with(tmp_path, 3, body)


def snapshotter(parts: Any, ask: Callable[[], None] = lambda: None) -> Snapshotter:
    """With these for all that it works with."""
    return Snapshotter(
        *[parts] * 4,
        ask_for_entry=ask,
        interval_s=1,
        clock=SystemClock(),
        at_work=AtWork(),
    )


@pytest.mark.parametrize(
    ("rests", "leads", "with_all", "cut"),
    [
        (True, True, True, [10]),
        (True, False, False, [10]),
        (True, True, False, []),
        (False, True, True, []),
    ],
)
def test_when_the_end_of_a_log_may_go(
    *, rests: bool, leads: bool, with_all: bool, cut: list[int]
) -> None:
    """Not while anything happens, nor as long as the leader knows who is away and lacks it."""
    compacted, written = list[int](), list[int]()

    def entries(start: int, stop: int) -> list[Entry]:
        return [Entry(index, 1, bytes(REST_BYTES)) for index in range(start, stop)]

    raft = SimpleNamespace(
        rests=rests,
        leadership=object() if leads else None,
        rests_with=(1, 2) if with_all else (1,),
        peers=(1, 2),
        first_index=1,
        last_index=20,
        log=SimpleNamespace(entries=entries),
        compact=lambda index, mark: compacted.append(index),
    )
    parts: Any = SimpleNamespace(
        raft=raft,
        applied_index=20,
        machine=StateMachine(),
        cursors={},
        cut=written.append,
    )
    tested = snapshotter(parts)
    marks = (Snapshot(index, 1, (0, 1, 2), (), b"") for index in (10, 20))
    tested._taken = tuple(_Taken(mark, 5, {}) for mark in marks)
    assert tested._cut() is bool(cut)
    assert compacted == written == cut


def test_no_snapshot_is_taken_while_that_of_a_leader_waits_for_room() -> None:
    """The log begins behind that one, so the state has an entry that is not in the log."""
    log = RaftLog(20, 3, [])

    async def tidied() -> None:
        return None

    raft = SimpleNamespace(first_index=log.base_index + 1, term_at=log.term_at)
    parts: Any = SimpleNamespace(raft=raft, applied_index=8, wait_tidied=tidied)
    tested = snapshotter(parts)
    written = list[int]()

    async def write(index: int) -> None:
        written.append(index)
        tested._taken = (_Taken(Snapshot(index, 3, (0,), (), b""), 7, {}),)

    async def body() -> None:
        tested._write = write  # type: ignore[method-assign]
        assert await tested.take() == 0
        assert not written
        parts.applied_index = 20
        assert await tested.take() == 7
        assert written == [20]

    asyncio.run(body())


@pytest.mark.parametrize(
    ("leads", "came", "held", "wanted"),
    [
        (False, False, 3, ["asked"]),
        (False, True, 3, []),
        (False, False, 1, []),
        (True, False, 3, ["added"]),
    ],
)
def test_who_was_too_slow_for_the_leaders_entry_asks_for_another_one(
    *, leads: bool, came: bool, held: int, wanted: list[str]
) -> None:
    """A follower waits longer than the leader does, and not for what has come meanwhile."""
    done = list[str]()
    entries = [Entry(index, 1, bytes(REST_BYTES)) for index in range(20 - held, 20)]
    raft = SimpleNamespace(
        rests=True,
        leadership=object() if leads else None,
        rests_with=(1, 2),
        peers=(1, 2),
        first_index=1,
        log=SimpleNamespace(entries=lambda start, stop: entries),
    )
    parts: Any = SimpleNamespace(
        raft=raft,
        is_leader=leads,
        propose=lambda commands: done.append("added"),
        applied_index=20,
        machine=StateMachine(),
        cursors={},
    )
    tested = snapshotter(parts, lambda: done.append("asked"))
    tested._taken = (_Taken(Snapshot(20, 1, (0, 1, 2), (), b""), 5, {}),)
    asyncio.run(tested._look())
    assert done == []
    assert (tested.due_at is None) == (held == 1)
    waits = FOLLOWERS_WAIT if held > 1 and not leads else 1
    assert tested._due_at - SystemClock().now() == pytest.approx(waits, abs=0.9)
    if came:
        parts.applied_index += 1
    tested._nudge()
    assert done == wanted
