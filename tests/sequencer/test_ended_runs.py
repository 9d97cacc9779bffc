"""Runs that end in very many partitions: what nodes tell each other of them, turn by turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

from samelog.sequencer.cluster.ended_runs import EndedRuns
from samelog.sequencer.events import Ends
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    OpenInputCommand,
    OpenPlacedInput,
    OpenRunCommand,
)
from samelog.wire.bounds import ENDS_TOLD
from samelog.wire.peer_messages import RunEnded
from tests.kafka.test_turns import BOUND, Turns
from tests.sequencer.cluster import RunWith, until
from tests.sequencer.test_data_groups import led, make_groups, place
from tests.sequencer.test_ending import wide_world

SESSION, RUN, OTHER = "s", "d" * 32, "e" * 32
MANY = 3 * ENDS_TOLD + 1
MOST = 1 << 14
"""Handles that a publisher may open on a connection."""


def ends_of(count: int, byte: int = 9) -> Ends:
    """A run that ends in so many partitions."""
    return {("placed", index): (0, byte) for index in range(count)}


async def told(count: int, sent: list[RunEnded]) -> list[int]:
    """Tell of a run until all of it is sent; how many messages were sent in each turn."""
    runs, ends = EndedRuns(), ends_of(count)
    runs.tell(SESSION, RUN, ends, sent.append)
    found = [len(sent)]
    while len(sent) * ENDS_TOLD < count:
        runs.tell(SESSION, RUN, ends, sent.append)  # again, while it is under way
        await asyncio.sleep(0)
        found.append(len(sent) - sum(found))
    return found


def test_many_ends_are_sent_in_a_message_each_turn() -> None:
    sent = list[RunEnded]()
    assert max(asyncio.run(told(MANY, sent))) == 1
    assert [len(each.ends) for each in sent] == [ENDS_TOLD] * 3 + [1]
    for count in (0, 1, ENDS_TOLD):
        sent.clear()
        assert asyncio.run(told(count, sent)) == [1]


def test_ends_are_used_once_all_are_known() -> None:
    sent, runs = list[RunEnded](), EndedRuns()
    asyncio.run(told(MANY, sent))
    assert [runs.hear(1, each) for each in sent] == [None, None, None, ends_of(MANY)]
    assert [runs.hear(1, each) for each in sent[1:]] == [None] * 3, "each series is whole"
    assert runs.hear(2, sent[0]) is None
    assert runs.hear(1, sent[0]) == ends_of(MANY), "in any order"
    runs.hear(1, sent[0])
    assert runs.hear(1, RunEnded(SESSION, OTHER)) == {}, "of another run"
    assert [runs.hear(1, each) for each in sent[1:]] == [None] * 3
    runs.forget(1)
    assert runs.hear(1, sent[0]) is None


def test_the_entry_that_closes_a_run_makes_no_call_for_each_end() -> None:
    machine, turns = wide_world(MANY).machine, Turns()
    numbers = [entry.partition for entry in machine.state.sessions.inputs_of(SESSION)]
    closing = CloseRun(SESSION, "0", 7, [(number, 0, 9) for number in numbers])
    run = turns.count(lambda: machine.apply(closing))
    assert turns.calls < MANY / 4
    assert [end[1:] for end in run.ends] == [(0, 9)] * MANY


def test_a_run_that_ends_in_many_partitions_takes_no_long_turn(
    tmp_path: Path, run_with: RunWith
) -> None:
    """Of the node that its sender is connected to, of others, and of the leader of a data group."""
    turns = Turns()

    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: led(nodes, 1) == [nodes[0]], "leads")
        await place(nodes[0], 1)
        propose, topic_id = nodes[0].raft.proposer.propose, "f" * 32
        await propose(OpenRunCommand(SESSION, "d", "i", 0, RUN, None, None))
        await propose(OpenInputCommand(SESSION, topic_id, 0))
        replicas = [node.data_groups.replicas[1] for node in nodes]
        machines = [each.group_replica.logs.machine for each in replicas]
        await until(lambda: all(topic_id in each.state.topics.by_id for each in machines), "placed")
        begun = OpenPlacedInput(SESSION, "d", "i", 0, 0, RUN, None, None, None, topic_id, 0)
        await replicas[0].raft.ask([begun])[1]
        await until(lambda: nodes[1].cluster.sessions.by_name.get(SESSION) is not None, "opened")

        def is_over(node: Node) -> bool:
            run = node.logs.machine.state.sessions.run_of(SESSION, RUN)
            return run is not None and run.closed

        with turns:
            nodes[1].logs.intake.end_run(SESSION, RUN, ends_of(MOST, 0))
            await until(lambda: all(map(is_over, nodes)), "the run is closed")

    run_with(tmp_path, 3, body)
    assert turns.most <= BOUND, turns.most
