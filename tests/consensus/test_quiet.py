"""Groups in which nothing happens: who rests, and what wakes them."""

from __future__ import annotations

import pytest

from samelog.consensus import Role
from samelog.consensus.messages import Heartbeat, PreVote, PreVoteReply, Quiet
from tests.consensus.group import Group, led

LONG_S = 60.0


def quiet(group: Group) -> Group:
    """The group, in which all may rest; others are always heard of."""
    for node in group.nodes:
        node.raft.allow_quiet(lambda: group.now)
    return group


def resting(voters: int = 3) -> Group:
    """A group that rests, led by 0."""
    group = quiet(led(voters))
    group.propose(0, b"a")
    group.wait(1.0)
    assert [node.raft.rests for node in group.nodes] == [True] * voters
    return group


@pytest.mark.parametrize("voters", [1, 3, 5])
def test_a_group_that_rests_says_nothing_and_has_no_timers(voters: int) -> None:
    group = resting(voters)
    term = group[0].term
    assert all(node.raft.next_deadline() == float("inf") for node in group.nodes)
    group.wait(LONG_S)
    assert group.leader == 0
    assert group[0].term == term
    assert not group.queue


def test_nobody_rests_unless_it_is_told_of_others() -> None:
    group = led()
    group.wait(LONG_S / 10)
    assert not any(node.raft.rests for node in group.nodes)


def test_a_proposal_wakes_all_and_then_they_rest_again() -> None:
    group = resting()
    group.wait(LONG_S)
    index = group.propose(0, b"b")
    assert not any(node.raft.rests for node in group.nodes)
    assert [node.raft.applied_index >= index - 1 for node in group.nodes] == [True] * 3
    group.wait(1.0)
    assert [node.raft.commit_index for node in group.nodes] == [index] * 3
    assert all(node.raft.rests for node in group.nodes)


def test_a_read_at_a_follower_is_answered_by_a_leader_that_rested() -> None:
    group = resting()
    group.wait(LONG_S)
    group[2].read_index(7, group.now)
    group.settle()
    assert group.nodes[2].reads == [(7, group[0].commit_index)]


def test_a_group_with_a_follower_that_is_away_rests_without_it_after_a_while() -> None:
    group = quiet(led())
    group.isolate(2)
    group.wait(1.0)
    assert not any(node.raft.rests for node in group.nodes), "it may just be slow"
    group.wait(2.0)
    assert [node.raft.rests for node in group.nodes] == [True, True, False]
    assert group[0].rests_with == (1,)
    group.wait(LONG_S)
    assert [node.raft.rests for node in group.nodes] == [True, True, False]
    assert group.leader == 0


def test_a_group_that_woke_does_not_take_for_away_who_had_nothing_to_say_for_long() -> None:
    group = resting()
    group.wait(LONG_S)
    group.isolate(2)
    group.propose(0, b"b")
    group.wait(1.0)
    assert not group[0].rests


def test_a_leader_that_hears_of_a_late_follower_does_not_rest_without_it() -> None:
    group = quiet(led())
    group.isolate(2)
    group.wait(1.0)
    group[0].wake(group.now)
    group.wait(1.0)
    assert not group[0].rests, "it counts as away only when it is silent from now on"
    group.wait(3.0)
    assert group[0].rests


def test_who_comes_back_wakes_the_group_and_then_rests_with_it() -> None:
    group = quiet(led())
    group.isolate(2)
    group.propose(0, b"a")
    group.wait(3.0)
    assert [node.raft.rests for node in group.nodes] == [True, True, False]
    term = group[0].term
    group.mend()
    group.wait(3.0)
    assert [node.raft.rests for node in group.nodes] == [True] * 3
    assert group[2].applied_index == group[0].applied_index
    assert (group.leader, group[0].term) == (0, term)


def test_a_leader_without_a_majority_does_not_rest() -> None:
    group = quiet(led(5))
    for number in (2, 3, 4):
        group.isolate(number)
    group.wait(LONG_S / 10)
    assert not any(node.raft.rests for node in group.nodes)


def test_who_lacks_something_does_not_rest_by_the_leaders_word() -> None:
    group = quiet(led())
    group.isolate(2)
    group.propose(0, b"a")
    last, term = group[0].last_index, group[0].term
    group[2].step(0, Quiet(term, last, term), group.now)
    assert not group[2].rests


def test_a_follower_that_wakes_knows_that_its_leader_lives() -> None:
    group = resting()
    group.wait(LONG_S)
    group[1].step(2, PreVote(group[1].term + 1, 99, 99), group.now)
    assert not group[1].rests
    assert not group[1].take_effects().send, "its leader was heard of just now"


def test_a_follower_whose_leader_is_silent_asks_for_votes() -> None:
    group = quiet(led())
    group.wait(1.0)
    heard = group.now
    for node in group.nodes:
        node.raft.allow_quiet(lambda: heard)
    group.crash(0)
    group.now += LONG_S
    for number in (1, 2):
        group[number].leader_lost(group.now)
    group.wait(2.0)
    assert group.leader in (1, 2)


def test_a_leader_that_wakes_proves_itself_anew() -> None:
    group = resting()
    group.isolate(0)
    group.now += LONG_S
    group[0].wake(group.now)
    group[0].tick(group.now)
    assert any(isinstance(message, Heartbeat) for _, message in group[0].take_effects().send)
    assert group[0].role is Role.LEADER
    group.wait(2.0)
    assert group[0].role is not Role.LEADER


def test_a_higher_term_ends_rest() -> None:
    group = resting()
    group[1].step(2, PreVoteReply(group[1].term + 5, granted=False), group.now)
    group[0].step(2, PreVoteReply(group[0].term + 5, granted=False), group.now)
    assert not group[0].rests
    assert group[0].role is Role.FOLLOWER
    assert group[0].next_deadline() < group.now + LONG_S
