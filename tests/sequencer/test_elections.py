"""Elections are in the log: who, in which term, and why."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from samelog.consensus import Raft, Role
from samelog.sequencer.node import Node
from samelog.sequencer.raft.elections import ElectionLog
from tests.sequencer.cluster import RunWith, leader_of, until


def said(caplog: pytest.LogCaptureFixture, event: str, term: int) -> list[str]:
    """The lines about one term."""
    lines = [record.getMessage() for record in caplog.records if "elections" in record.name]
    return [line for line in lines if line.startswith(event) and f"term={term} " in line]


def test_each_node_says_who_leads_and_the_candidate_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        term = leader.raft.group.raft.term
        assert len(said(caplog, "stands for election", term)) >= 1
        await until(lambda: len(said(caplog, "a leader is elected", term)) == 3, "all say so")
        assert all("since the start" in line for line in said(caplog, "a leader", term))
        await leader.peers.changes.transfer(None)
        later = term + 1
        await until(lambda: len(said(caplog, "a leader is elected", later)) == 3, "all say so")
        assert "handed leadership over" in said(caplog, "stands for election", later)[0]

    with caplog.at_level(logging.INFO, "samelog.sequencer.raft.elections"):
        run_with(tmp_path, 3, body)


@pytest.mark.parametrize(
    ("is_cut", "why"),
    [(True, "the connection to 0, which led, broke"), (False, "was silent for too long")],
)
def test_a_leader_that_is_gone_is_the_reason(
    caplog: pytest.LogCaptureFixture, is_cut: bool, why: str
) -> None:
    raft = SimpleNamespace(node_id=1, voters=(0, 1, 2), role=Role.FOLLOWER, term=4, leader=0)
    seen = ElectionLog(cast(Raft, raft), 3, lambda: 7)
    with caplog.at_level(logging.INFO, "samelog.sequencer.raft.elections"):
        seen.note()
        if is_cut:
            seen.lost_connection()
        for role, term, leader in (
            (Role.PRE_CANDIDATE, 4, None),
            (Role.CANDIDATE, 5, None),
            (Role.LEADER, 5, 1),
        ):
            raft.role, raft.term, raft.leader = role, term, leader
            seen.note()
            seen.note()
    assert len(said(caplog, "stands for election group=3", 5)) == 1
    assert why in said(caplog, "stands for election", 5)[0]
    assert [why in line for line in said(caplog, "a leader is elected group=3 leader=1", 5)] == [
        True
    ]
    assert seen.count == 2
    assert [each[:3] for each in seen.newest] == [(7, 4, 0), (7, 5, 1)]
    assert why in seen.newest[-1].why
