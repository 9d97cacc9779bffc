"""What our Raft has beyond the paper's figure 2 in elections and leadership, promise by promise."""

from __future__ import annotations

import random
from math import inf

import pytest

from samelog.consensus import (
    Busy,
    NotLeader,
    ProgressState,
    RaftConfig,
    Role,
)
from samelog.consensus.messages import (
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    PreVote,
    PreVoteReply,
    TimeoutNow,
    Vote,
    VoteReply,
)
from samelog.consensus.replication import GATHER_S
from tests.consensus.group import Group, led

# --- elections ------------------------------------------------------------------------------------


def test_prevote_raises_no_term() -> None:
    group = Group(3)
    group.isolate(0)
    for _ in range(10):
        group.timeout(0)
    assert (group[0].role, group[0].term) == (Role.PRE_CANDIDATE, 0)


def test_a_node_that_hears_its_leader_answers_no_candidate() -> None:
    group = led()
    term = group[1].term
    group[1].step(2, PreVote(term + 1, 99, 99), group.now)
    group[1].step(2, Vote(term + 1, 99, 99, transfer=False), group.now)
    assert not group[1].take_effects()
    assert group[1].term == term


def test_the_lease_ends_with_the_election_timeout() -> None:
    group = led()
    later = group.now + group.config.election_timeout_s
    group[1].step(2, PreVote(group[1].term + 1, 99, 99), later)
    assert group[1].take_effects().send == [(2, PreVoteReply(group[1].term + 1, granted=True))]


def test_a_pre_candidate_with_an_old_log_is_refused() -> None:
    group = led()
    group.propose(0, b"a")
    group[1].leader_lost(group.now)
    group[1].step(2, PreVote(group[1].term + 1, 1, 1), group.now)
    assert (2, PreVoteReply(group[1].term, granted=False)) in group[1].take_effects().send


def test_of_two_crossing_pre_candidates_one_gives_way() -> None:
    group = led()
    group.crash(0)
    for number in (1, 2):
        group[number].leader_lost(group.now)
    group.now += 0.05
    for number in (1, 2):
        group[number].tick(group.now)
    group.settle()
    assert group.leader == 1


def test_leadership_moves_within_100_ms_of_a_kill() -> None:
    for seed in range(50):
        group = Group(3)
        for number, node in enumerate(group.nodes):
            node.raft.random = random.Random(seed * 3 + number)
        group.elect(seed % 3)
        killed = seed % 3
        group.crash(killed)
        for number in range(3):
            if number != killed:
                group[number].leader_lost(group.now)
        group.wait(0.1)
        assert group.leader is not None


def test_a_false_alarm_about_the_leader_disturbs_nobody() -> None:
    group = led()
    term = group[0].term
    group[2].leader_lost(group.now)
    group.wait(0.5)
    assert (group.leader, group[0].term, group[2].leader) == (0, term, 0)


def test_a_lost_leader_that_is_heard_of_again_ends_the_alarm() -> None:
    group = led()
    group[2].leader_lost(group.now)
    group[2].step(0, Heartbeat(group[0].term, 0, 0, 0), group.now)
    group[2].tick(group.now + 0.06)
    assert group[2].role is Role.FOLLOWER


def test_leader_lost_concerns_followers_only() -> None:
    group = led()
    group[0].leader_lost(group.now)
    assert group[0].role is Role.LEADER
    assert not group[0].take_effects()


def test_unanswered_questions_are_repeated() -> None:
    group = Group(3)
    group.isolate(0)
    group.timeout(0)
    group.mend()
    group.now = group[0].next_deadline()
    assert group.now <= 100.0 + 1.0 + group.config.heartbeat_s
    group[0].tick(group.now)
    group.settle()
    assert group.leader == 0


def test_votes_wait_for_the_candidates_own_save() -> None:
    """Or a candidate that forgot its newest entries could win by votes given to those."""
    group = Group(3)
    group.hold_disk(0)
    group.timeout(0)
    assert group[0].role is Role.CANDIDATE
    assert [group[number].term for number in (1, 2)] == [0, 0]
    group.release_disk(0)
    assert group.leader == 0


def test_what_a_suspect_node_grants_is_part_of_no_majority() -> None:
    group = Group(3, timid=[2])
    group[2].step(1, PreVote(1, 0, 0), group.now)
    assert group[2].take_effects().send == [(1, PreVoteReply(1, granted=True, counts=False))]
    group[2].step(1, Vote(1, 0, 0, transfer=False), group.now)
    answer = [(1, VoteReply(1, granted=True, counts=False))]
    assert group[2].take_effects().send_after_save == answer
    group[2].step(1, TimeoutNow(1), group.now)
    assert group[2].role is Role.FOLLOWER


@pytest.mark.parametrize(("voters", "suspects"), [(3, 1), (5, 2), (5, 3), (5, 5)])
def test_no_part_elects_a_leader_without_a_majority_of_sure_ones(
    voters: int, suspects: int
) -> None:
    """Three need both others, five three of four; all suspect, everybody."""
    group = Group(voters, timid=range(suspects))
    group.isolate(voters - 1)
    group.wait(5)
    assert group.leader is None


@pytest.mark.parametrize(("voters", "suspects", "away"), [(3, 1, 0), (5, 2, 0), (5, 1, 1)])
def test_sure_nodes_elect_one_of_them_in_the_next_term(
    voters: int, suspects: int, away: int
) -> None:
    group = Group(voters, timid=range(suspects))
    if away:
        group.isolate(voters - 1)
    group.wait(5)
    assert group.leader is not None
    assert group.leader >= suspects
    assert group[group.leader].term < 100
    assert not group[group.leader].is_elected_in_doubt
    assert not any(group[number].may_vote for number in range(suspects))


@pytest.mark.parametrize(("voters", "suspects"), [(2, 2), (3, 2), (3, 3), (5, 5)])
def test_where_all_agree_the_newest_log_leads_in_a_far_term(voters: int, suspects: int) -> None:
    group = Group(voters)
    group.elect(0)
    group.propose(0, b"a")
    term = group[0].term
    for number in range(voters):
        group.crash(number)
        if number:
            group.lose(number, 2)
    group.doubtful.clear()
    group.timid.update(range(suspects))
    for number in range(voters):
        group.restart(number)
    group.wait(6)
    assert group.leader == 0
    assert group[0].term >= term + 1000
    assert group[0].is_elected_in_doubt
    assert all(group[number].may_vote for number in range(voters))
    group.propose(0, b"b")
    assert all(group.data(number) == [b"a", b"b"] for number in range(voters))


def test_the_only_voter_that_is_suspect_waits_for_an_operator() -> None:
    group = Group(1, timid=[0])
    group.wait(5)
    assert group.leader is None


def test_a_leader_that_turns_out_suspect_leads_no_more() -> None:
    group = led()
    group[0].become_suspect()
    assert group[0].role is Role.FOLLOWER
    group.wait(3)
    assert group.leader in (1, 2)
    group.crash(3 - group.leader)
    group.wait(3)
    assert group.leader is None
    group[0].regain_trust()
    group.wait(3)
    assert group.leader is not None


def test_a_suspect_node_replicates_but_does_not_count() -> None:
    group = led(timid=[2])
    group.isolate(1)
    group.propose(0, b"a")
    assert group[0].commit_index == 1
    assert group[2].last_index == 2
    group.mend()
    group.wait(0.2)
    assert group.data(2) == [b"a"]


def test_a_node_that_is_let_in_again_counts_again() -> None:
    group = led(timid=[2])
    group.isolate(1)
    group.propose(0, b"a")
    group[2].regain_trust()
    group.wait(0.3)
    assert group[0].commit_index == 2


def test_who_is_let_in_is_in_step_though_nothing_comes() -> None:
    """Its first word that counts may be the answer to an entry, and the last one for long."""
    group = led(timid=[2])
    group[2].regain_trust()
    group.propose(0, b"a")
    group.wait(0.3)
    progress = group[0].progress(2)
    assert progress is not None
    assert (progress.state, progress.match) == (ProgressState.REPLICATE, 2)


def test_a_follower_that_was_wiped_is_fed_anew() -> None:
    group = led()
    group.propose(0, b"a", b"b")
    group.crash(2)
    group.wipe(2)
    group.restart(2)
    group.wait(0.3)
    assert group.data(2) == [b"a", b"b"]


# --- leadership -----------------------------------------------------------------------------------


def test_a_leader_without_majority_steps_down() -> None:
    group = led()
    group.isolate(0)
    group.wait(0.9)
    assert group[0].role is not Role.LEADER


def test_a_leader_that_stood_still_does_not_blame_the_others() -> None:
    group = led()
    group.wait(0.3)
    group.now += 5.0
    group[0].tick(group.now)
    assert group[0].role is Role.LEADER


def test_learners_do_not_keep_a_leader_alive() -> None:
    group = led(learners=2)
    group.isolate(1)
    group.isolate(2)
    group.wait(0.9)
    assert group[0].role is not Role.LEADER


def test_learners_follow_and_never_vote() -> None:
    group = led(learners=1)
    group.propose(0, b"a")
    assert group.data(3) == [b"a"]
    group[3].leader_lost(group.now)
    group[3].tick(group.now + 10)
    assert group[3].role is Role.FOLLOWER


def test_what_is_for_those_far_away_is_gathered() -> None:
    group = led(learners=2)
    group.wait(0.1)
    group[0].gather_for({4})
    for each in (b"a", b"b"):
        group.propose(0, each)
    assert [group.data(number) for number in (1, 3, 4)] == [[b"a", b"b"], [b"a", b"b"], []]
    assert group[0].next_deadline() <= group.now + GATHER_S
    group.wait(GATHER_S)
    assert group.data(4) == [b"a", b"b"]
    lead = group[0].leadership
    assert lead is not None
    assert lead.far_due == inf, "nothing waits any more"


def test_who_is_far_away_and_lacks_something_is_asked_at_once() -> None:
    group = led(learners=1)
    group.wait(0.1)
    group[0].gather_for({3})
    group[0].peer_restarted(3)
    assert [to for to, _ in group[0].take_effects().send] == [3]


def test_whoever_asks_gets_an_answer_by_his_log() -> None:
    """The candidate may hold a configuration that we lack: it may be a voter, and we may be one."""
    group = led(learners=1)
    term, last = group[3].term, group[3].last_index
    group[3].leader_lost(group.now)
    group[3].step(9, PreVote(term + 1, last, term), group.now)
    group[3].step(9, PreVote(term + 1, last - 1, term), group.now)
    replies = [message for _, message in group[3].take_effects().send]
    assert replies == [PreVoteReply(term + 1, granted=True), PreVoteReply(term, granted=False)]


def test_nodes_that_are_no_members_cannot_depose_a_leader() -> None:
    group = led()
    term = group[0].term
    for message in (Vote(9, 99, 99, transfer=False), HeartbeatReply(9, 0, counts=True)):
        group[0].step(6, message, group.now)
    assert (group[0].term, group[0].role) == (term, Role.LEADER)


def test_a_leader_that_we_do_not_know_is_followed() -> None:
    group = led(learners=1)
    group[1].step(3, Heartbeat(group[0].term + 1, 0, 0, 0), group.now)
    assert (group[1].term, group[1].leader) == (group[0].term + 1, 3)


def test_transfer_hands_over_at_once_when_the_target_has_everything() -> None:
    group = led()
    group[0].transfer_leadership(2, group.now)
    group.settle()
    assert group.leader == 2


def test_transfer_waits_for_a_target_that_lags() -> None:
    group = led()
    group.isolate(2)
    group.propose(0, b"a")
    group[0].transfer_leadership(2, group.now)
    with pytest.raises(NotLeader) as caught:
        group[0].propose([b"x"], group.now)
    assert caught.value.hint == 2
    group.mend()
    group.wait(0.2)
    assert group.leader == 2


def test_transfer_is_given_up_after_an_election_timeout() -> None:
    group = led()
    group.isolate(2)
    group[0].transfer_leadership(2, group.now)
    group.wait(0.5)
    assert group.propose(0, b"a") == 2


def test_transfer_to_nobody_is_refused() -> None:
    group = led(learners=1)
    for target in (0, 3, 6):
        with pytest.raises(ValueError, match="no other voter"):
            group[0].transfer_leadership(target, group.now)
    with pytest.raises(NotLeader):
        group[1].transfer_leadership(2, group.now)


def test_nothing_is_handed_to_who_does_not_count() -> None:
    group = led(timid=[2])
    group.wait(0.3)
    with pytest.raises(ValueError, match="no other voter that counts"):
        group[0].transfer_leadership(2, group.now)
    assert group.propose(0, b"a") == 2


def test_too_many_uncommitted_bytes_make_a_leader_busy() -> None:
    group = led(config=RaftConfig(max_uncommitted_bytes=200))
    group.isolate(0)
    group.propose(0, bytes(500))
    with pytest.raises(Busy):
        group.propose(0, b"x")
    group.mend()
    group.wait(0.2)
    group.propose(0, b"x")
    assert group.data(1) == [bytes(500), b"x"]


def test_empty_proposals_are_refused() -> None:
    group = led()
    for data in ([], [b"a", b""]):
        with pytest.raises(ValueError, match="proposal"):
            group[0].propose(data, group.now)


def test_planning_waits_until_the_noop_is_applied() -> None:
    group = Group(3)
    group.isolate(0)
    raft = group[0]
    raft.tick(group.now + 1)
    raft.step(1, PreVoteReply(1, granted=True), group.now)
    group.drain()
    raft.step(1, VoteReply(1, granted=True), group.now)
    group.drain()
    assert raft.role is Role.LEADER
    assert raft.leadership is not None
    assert raft.applied < raft.leadership.noop_index
    raft.step(1, AppendReply(1, 1, 1, counts=True), group.now)
    assert raft.applied < raft.leadership.noop_index
    group.drain()
    assert raft.applied == raft.leadership.noop_index


def test_a_new_group_elects_its_first_leader_by_the_votes_of_all() -> None:
    group = Group(3)
    for number in range(3):
        group[number].begin_group()
    group.isolate(2)
    group.wait(5)
    assert group.leader is None
    group.mend()
    group.wait(3)
    leader = group.leader
    assert leader is not None
    assert group[leader].term < 1000
    assert not group[leader].is_elected_in_doubt
    group.configure(leader, range(3))
    group.isolate(leader)
    group.wait(5)
    assert group.leader not in (None, leader)  # a majority is enough from then on
