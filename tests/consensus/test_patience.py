"""Nodes whose own loops are late wait longer for their leader; nothing else adapts."""

from __future__ import annotations

import pytest

from samelog.consensus import Role
from samelog.consensus.messages import PreVote
from samelog.consensus.patience import DELAYS, FALL_S, MOST, SPREAD, Patience
from tests.consensus.group import led

TIMEOUT_S = 1.0


def test_patience_is_some_of_the_delays_within_its_bounds() -> None:
    patience = Patience(TIMEOUT_S, 0.0)
    for delay_s, seconds in ((0.01, 1.0), (0.2, 1.0), (0.4, 0.4 * DELAYS), (60.0, MOST)):
        patience.delayed(delay_s, 0.0)
        assert patience.seconds == pytest.approx(seconds)


def test_patience_falls_back_when_the_loop_is_quiet() -> None:
    patience = Patience(TIMEOUT_S, 0.0)
    patience.delayed(60.0, 0.0)
    patience.delayed(0.001, FALL_S / 2)
    assert TIMEOUT_S < patience.seconds < MOST * TIMEOUT_S
    patience.delayed(0.001, FALL_S)
    assert patience.seconds == TIMEOUT_S
    patience.delayed(0.001, FALL_S + 100)
    assert patience.seconds == TIMEOUT_S


def test_who_should_not_lead_waits_longer() -> None:
    patience = Patience(TIMEOUT_S, 0.0)
    patience.draw(1.0)
    patience.weigh(2.0)
    assert patience.wait_s == pytest.approx(2 * (1 + SPREAD) * TIMEOUT_S)
    patience.draw(0.0)
    assert patience.wait_s == pytest.approx(2 * TIMEOUT_S)
    patience.draw(0.5)
    patience.delayed(0.4, 0.0)
    assert patience.wait_s == pytest.approx(2 * (1 + SPREAD / 2) * 0.4 * DELAYS)


def test_a_node_that_is_late_waits_longer_for_its_leader() -> None:
    group = led()
    follower, timeout_s = group[1], group.config.election_timeout_s
    follower.loop_delayed(5 * timeout_s, group.now)
    follower.tick(group.now + 2 * timeout_s)
    assert (follower.role, follower.leader) == (Role.FOLLOWER, 0)
    follower.tick(group.now + 2 * MOST * timeout_s)
    assert follower.role is Role.PRE_CANDIDATE


def test_a_patient_node_is_as_impatient_as_before_once_its_loop_is_quiet() -> None:
    group = led()
    group[1].loop_delayed(5.0, group.now)
    group.wait(FALL_S + 1.0)
    assert group[1].leader == 0
    group.crash(0)
    group[1].tick(group.now + 2 * group.config.election_timeout_s)
    assert group[1].role is Role.PRE_CANDIDATE


def test_patience_moves_no_answer_to_others() -> None:
    """Who asks another node's vote is answered by the configured timeout, however patient it is."""
    group = led()
    group[1].loop_delayed(5.0, group.now)
    later = group.now + group.config.election_timeout_s
    group[1].step(2, PreVote(group[1].term + 1, 100, group[1].term), later - 0.01)
    assert not group[1].take_effects().send
    group[1].step(2, PreVote(group[1].term + 1, 100, group[1].term), later)
    assert [to for to, _ in group[1].take_effects().send] == [2]


def test_a_late_node_reads_before_it_judges_its_leader() -> None:
    group = led()
    now = group.now + 60.0
    group[1].tick(now, 59.0)
    assert group[1].leader == 0
    assert group[1].next_deadline() <= now  # the driver comes back as soon as it has read
    group[1].tick(now + 0.002, 59.0)  # as late as before: now it is judged all the same
    assert group[1].role is Role.PRE_CANDIDATE


def test_a_leader_that_stood_still_speaks_at_once_and_reads_before_it_judges() -> None:
    group = led()
    leader, timeout_s = group[0], group.config.election_timeout_s
    group.wait(timeout_s)
    leader.tick(group.now + 60.0, 60.0)
    sent = leader.take_effects().send
    assert sorted(to for to, _ in sent) == [1, 2]
    leader.tick(group.now + 60.002)
    assert leader.leader == 0
    leader.tick(group.now + 60.0 + 2 * timeout_s)
    assert leader.role is Role.FOLLOWER


def test_a_leader_that_is_always_late_is_deposed_all_the_same() -> None:
    """Its own delays do not count against its followers; what is left between them does."""
    group = led()
    group.isolate(0)
    leader, now = group[0], group.now
    for _ in range(100):
        now = max(now, leader.next_deadline()) + 1.0
        leader.tick(now, 1.0)
        leader.take_effects()
    assert leader.role is not Role.LEADER


def test_who_steps_down_asks_first() -> None:
    """Its followers may just have been late: nobody is to wait for another one's patience."""
    group = led()
    group[0].loop_delayed(5.0, group.now)
    group.isolate(0)
    group.wait(3.1 * group.config.election_timeout_s)
    assert group[0].role is Role.PRE_CANDIDATE
