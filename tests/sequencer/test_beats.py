"""What members say to each other for groups that rest, and how often."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from samelog.consensus import Role
from samelog.sequencer.data_groups.beats import QuietGroups
from samelog.wire.peer_messages import NotQuiet

GROUP, NEWCOMER, FOLLOWER = 7, 0, 1


class Raft:
    """A replica of a group, as beats see it."""

    def __init__(self, role: Role, *, rests: bool) -> None:
        self.raft: Any = SimpleNamespace(role=role, rests=rests, rests_with=(FOLLOWER,))
        self.raft.allow_quiet = lambda heard: None
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


@pytest.mark.parametrize(
    ("heartbeat_ms", "election_ms", "pause_s"),
    [(100, 1000, 0.2), (20, 200, 0.04), (50, 150, 0.05), (100, 600, 0.12), (333, 1000, 0.333)],
)
def test_beats_are_half_as_many_as_heartbeats_where_enough_are_left(
    heartbeat_ms: int, election_ms: int, pause_s: float
) -> None:
    settings = SimpleNamespace(heartbeat_ms=heartbeat_ms, election_ms=election_ms)
    anything: Any = None
    given: Any = SimpleNamespace(config=SimpleNamespace(raft=settings), clock=anything)
    assert QuietGroups(given, anything, anything)._pause_s == pytest.approx(pause_s)


def quiet(sent: list[Any]) -> QuietGroups:
    given: Any = SimpleNamespace(
        config=SimpleNamespace(raft=None), clock=SimpleNamespace(now=lambda: 1.0)
    )
    links: Any = SimpleNamespace(send=lambda *what: sent.append(what))
    return QuietGroups(given, links, lambda run: run.close())


def test_a_replica_that_begins_late_wakes_the_leader_that_rests_without_it() -> None:
    """The leader went to rest while that member was away, and its connection stands."""
    sent = list[Any]()
    quiet(sent).begin(GROUP, Raft(Role.FOLLOWER, rests=False), [2])  # type: ignore[arg-type]
    [(to, message)] = sent
    assert (to, message) == (2, NotQuiet((GROUP,)))

    leads, there = Raft(Role.LEADER, rests=True), quiet([])
    there.begin(GROUP, leads, [])  # type: ignore[arg-type]
    woken = []
    for member in (FOLLOWER, NEWCOMER):
        there.hear(member, message)
        woken.append(leads.woken)
    assert woken == [0, 1]


def test_it_keeps_a_leader_awake_that_is_about_to_rest_without_it() -> None:
    """A learner began, and said so, a moment before its leader counted it as away: the leader
    rested, and never fed it (worlds of converting groups, seed 542).
    """
    leads, there = Raft(Role.LEADER, rests=False), quiet([])
    leads.raft.rests_with = ()
    there.begin(GROUP, leads, [])  # type: ignore[arg-type]
    there.hear(NEWCOMER, NotQuiet((GROUP,)))
    assert leads.woken == 1


def test_nobody_else_is_woken_by_it() -> None:
    other, there = Raft(Role.FOLLOWER, rests=True), quiet([])
    there.begin(GROUP, other, [])  # type: ignore[arg-type]
    there.hear(NEWCOMER, NotQuiet((GROUP, GROUP + 1)))
    assert not other.woken
