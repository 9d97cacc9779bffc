"""When a leader lets another node lead."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from samelog.sequencer.cluster.changes import Changes
from samelog.sequencer.node import Node
from samelog.sequencer.state.commands import CreateTopicCommand, OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.machine import StateMachine
from tests.sequencer.cluster import leader_of, run_with, until


def test_bytes_that_rotted_here_are_left_to_another_leader_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("a" * 32, "t", 1, {}, 0))
    machine.apply(OpenRunCommand("s", "b" * 32, "samelog://publisher/p", 0, "c" * 32, None, None))
    machine.apply(OpenInputCommand("s", "a" * 32, 0))
    damaged = {7: "of an input that is gone"}
    changes = Changes(
        0,
        group=cast(Any, None),
        machine=machine,
        members=cast(Any, None),
        coordinator=cast(Any, SimpleNamespace(damaged_inputs=lambda: damaged)),
        clock=cast(Any, None),
        connected=lambda: [1],
        lives=cast(Any, None),
    )
    asked: list[int | None] = []
    answers = iter([None, 1, 1])

    def give(self: Changes, to: int | None = None) -> int | None:
        asked.append(next(answers))
        return asked[-1]

    monkeypatch.setattr(Changes, "give_leadership_away", give)
    changes._leave_damage_to_others()
    assert asked == []
    damaged[1] = "a batch with another checksum"
    for _ in range(4):
        changes._leave_damage_to_others()
    assert asked == [None, 1]
    machine.state.inputs[1].byte = 100
    changes._leave_damage_to_others()
    assert asked == [None, 1, 1]


def test_a_leader_that_takes_nothing_in_lets_another_lead(tmp_path: Path) -> None:
    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        leader.logs.intake.room.stop("the disk fails", for_good=True)
        others = [node for node in nodes if node is not leader]
        await until(lambda: any(node.raft.group.is_leader for node in others), "another leader")

    run_with(tmp_path, 3, body)
