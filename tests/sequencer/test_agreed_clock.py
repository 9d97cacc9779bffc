"""Everything expires by a majority's clocks: one wrong clock changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.config.tables.kafka import GroupLimits
from samelog.kafka.groups.driver import GroupDriver
from samelog.runtime.clock import ManualClock, SystemClock
from samelog.sequencer.cluster.agreed_clock import AgreedClock
from samelog.sequencer.node import Node
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.tables.groups import CommitOffsets, CommittedOffset
from samelog.sequencer.state.tables.members import SetMaintenanceCommand
from samelog.sequencer.state.tables.sessions import CloseRun, OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.sequencer.state.tables.transactions import AddToTransaction, InitProducer
from tests.sequencer.cluster import RunWith, leader_of, until

DAY_MS = 86_400_000
AT_MS = 1_700_000_000_000


def clocks(voters: int) -> tuple[ManualClock, AgreedClock]:
    host = ManualClock(now=5.0, wall_ms=AT_MS)
    agreed = AgreedClock(host)
    agreed.follow(lambda: range(voters))
    return host, agreed


def test_the_time_is_one_that_a_majority_has_reached() -> None:
    host, agreed = clocks(3)
    agreed.heard(0, AT_MS + 10 * DAY_MS)
    assert (agreed.is_agreed, agreed.wall_ms()) == (False, AT_MS), "the host's until then"
    agreed.heard(1, AT_MS + 7)
    assert (agreed.is_agreed, agreed.wall_ms()) == (True, AT_MS + 7)
    agreed.heard(2, AT_MS - 3)
    assert agreed.wall_ms() == AT_MS + 7
    agreed.heard(0, AT_MS - 10 * DAY_MS)
    assert agreed.wall_ms() == AT_MS - 3
    host.advance(2.5)
    assert agreed.wall_ms() == AT_MS + 2497, "it moves without reports, too"


def test_only_voters_clocks_count() -> None:
    _, agreed = clocks(2)
    for learner in (2, 3, 4):
        agreed.heard(learner, AT_MS + DAY_MS)
    assert not agreed.is_agreed
    agreed.heard(0, AT_MS)
    agreed.heard(1, AT_MS + DAY_MS)
    assert agreed.wall_ms() == AT_MS


def test_a_jump_of_the_hosts_clock_is_nothing_between_reports() -> None:
    host, agreed = clocks(1)
    agreed.heard(0, AT_MS)
    host._wall_ms += DAY_MS
    assert agreed.wall_ms() == AT_MS
    agreed.heard(0, AT_MS + DAY_MS)
    assert agreed.wall_ms() == AT_MS + DAY_MS


class Ahead(SystemClock):
    """A clock that was set ahead."""

    def __init__(self, by_ms: int) -> None:
        self._by_ms = by_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._by_ms


def sleepers(now_ms: int, maintained: str) -> list[AnyCommand]:
    """A session that ended, a producer with an open transaction and one without, offsets of a group
    without members, a node in maintenance.
    """
    return [
        CreateTopicCommand("a" * 32, "t", 1, {}, now_ms),
        OpenRunCommand("s", "b" * 32, "samelog://publisher/p", 0, "c" * 32, None, None),
        OpenInputCommand("s", "a" * 32, 0),
        CloseRun("s", "c" * 32, now_ms),
        InitProducer("open", 600_000, -1, -1, 7001, now_ms),
        InitProducer("idle", 600_000, -1, -1, 7002, now_ms),
        AddToTransaction("open", 7001, 0, [1], [], now_ms),
        CommitOffsets([("g", [(1, CommittedOffset(42, -1, "", now_ms))])]),
        SetMaintenanceCommand([maintained], now_ms + 600_000),
    ]


@pytest.mark.parametrize("by_days", [10, -10])
def test_the_leaders_wrong_clock_expires_nothing(
    tmp_path: Path, run_with: RunWith, by_days: int
) -> None:
    """Ten days off, and expiry is checked as if a minute had passed."""

    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        other = next(node for node in nodes if node is not leader)
        for command in sleepers(SystemClock().wall_ms(), other.member.config.name):
            outcome = await leader.raft.proposer.propose(command)
            assert not isinstance(outcome, Rejection), outcome
        clock, number = leader.member.clock, leader.peers.number
        assert isinstance(clock, AgreedClock)
        clock.host = Ahead(by_days * DAY_MS)
        health = leader.peers.presence.health
        wrong_ms = 9 * DAY_MS
        await until(
            lambda: abs(health[number].wall_ms - SystemClock().wall_ms()) > wrong_ms,
            "the leader's clock is reported",
        )
        for node in nodes:
            assert abs(node.member.clock.wall_ms() - SystemClock().wall_ms()) < DAY_MS
        limits = GroupLimits(offsets_retention_check_interval_ms=1)
        driver = GroupDriver(leader.raft, leader.logs.machine, clock, limits)
        for _ in range(3):
            leader.group_replica._upkeep._next_expiry = 0.0
            leader.group_replica._upkeep.tick()
            driver._tick()
            await until(
                lambda: leader.raft.group.applied_index == leader.raft.group.raft.last_index,
                "all that was proposed is applied",
            )
        driver.close()
        assert leader.peers.changes._in_maintenance(other.peers.number)
        state = leader.logs.machine.state
        assert "s" in state.sessions.by_name
        assert sorted(state.transactions.by_id) == ["idle", "open"]
        assert state.transactions.by_id["open"].is_open
        assert state.groups.by_id["g"].offsets[1].offset == 42

    run_with(tmp_path, 3, body)
