"""Sessions that nodes write for Kafka clients."""

from __future__ import annotations

import pytest

from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.ingest.node_sessions import (
    GONE_S,
    RunKeeper,
    check_owner,
    session_of,
)
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.session_index import node_of
from samelog.sequencer.state.tables.sessions import (
    CloseRun,
    OpenRunCommand,
)


def test_names_say_which_node() -> None:
    assert node_of(session_of(12)) == 12
    assert [node_of(name) for name in ("kafka", "kafka-", "kafka-x", "kafka-1x", "akafka-1")] == [
        None
    ] * 5


def test_publishers_may_not_claim_them() -> None:
    check_owner("samelog://node/n0", "kafka-0")
    check_owner("samelog://publisher/p", "kafka-x")
    with pytest.raises(RequestRefused, match="for what nodes write themselves"):
        check_owner("samelog://publisher/p", "kafka-0")


class World:
    """A state machine, nodes that are there, and what the keeper ended."""

    def __init__(self) -> None:
        self.machine = StateMachine()
        self.there = {1, 2}
        self.ended: list[tuple[str, str]] = []
        for node in (1, 2):
            self.machine.apply(
                OpenRunCommand(f"kafka-{node}", "id", "i", 0, f"run{node}", None, None)
            )
        self.machine.apply(OpenRunCommand("ewr", "id", "i", 0, "native", None, None))
        self.keeper = RunKeeper(
            self.machine,
            lambda node: node in self.there,
            lambda session, run_id, ends: self.ended.append((session, run_id)),
        )


def test_the_leader_ends_the_run_of_a_node_that_is_gone_for_long() -> None:
    world = World()
    world.keeper.tick(0, is_leader=True)
    world.there = {2}
    world.keeper.tick(1, is_leader=True)
    world.keeper.tick(GONE_S, is_leader=True)
    assert world.ended == []
    world.keeper.tick(1.1 + GONE_S, is_leader=True)
    assert world.ended == [("kafka-1", "run1")]
    world.machine.apply(CloseRun("kafka-1", "run1"))
    world.keeper.tick(100, is_leader=True)
    assert len(world.ended) == 1


def test_a_node_that_comes_back_keeps_its_run_and_followers_end_none() -> None:
    world = World()
    world.there = {2}
    world.keeper.tick(0, is_leader=True)
    world.there = {1, 2}
    world.keeper.tick(GONE_S, is_leader=True)
    world.there = {2}
    world.keeper.tick(GONE_S + 2, is_leader=True)
    world.keeper.tick(100, is_leader=False)
    world.keeper.tick(101, is_leader=True)
    assert world.ended == []
