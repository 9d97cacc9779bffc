"""What our Raft has beyond the paper's figure 2, one test for each promise."""

from __future__ import annotations

import random

import pytest

from shiplog.consensus import (
    Busy,
    Entry,
    HardState,
    InvariantError,
    MalformedMessage,
    NotLeader,
    ProgressState,
    Raft,
    RaftConfig,
    Role,
    Snapshot,
)
from shiplog.consensus.messages import (
    Append,
    AppendReject,
    AppendReply,
    Commit,
    Heartbeat,
    HeartbeatReply,
    PreVote,
    PreVoteReply,
    ReadReply,
    ReadRequest,
    SnapshotChunk,
    SnapshotReply,
    TimeoutNow,
    Vote,
    VoteReply,
)
from tests.consensus.group import Group


def led(voters: int = 3, **options: object) -> Group:
    """A group led by node 0."""
    group = Group(voters, **options)  # type: ignore[arg-type]
    group.elect(0)
    return group


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
            node.raft._core.random = random.Random(seed * 3 + number)
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


def test_a_node_that_may_not_vote_refuses_and_never_campaigns() -> None:
    group = Group(3, timid=[2])
    group[2].step(1, PreVote(1, 0, 0), group.now)
    assert group[2].take_effects().send == [(1, PreVoteReply(0, granted=False))]
    group[2].step(1, Vote(1, 0, 0, transfer=False), group.now)
    assert group[2].take_effects().send_after_save == [(1, VoteReply(1, granted=False))]
    group[2].tick(group.now + 10)
    assert group[2].role is Role.FOLLOWER
    group[2].step(1, TimeoutNow(1), group.now)
    assert group[2].role is Role.FOLLOWER


def test_a_node_that_may_not_vote_replicates_but_does_not_count() -> None:
    group = led(timid=[2])
    group.isolate(1)
    group.propose(0, b"a")
    assert group[0].commit_index == 1
    assert group[2].last_index == 2
    group.mend()
    group.wait(0.2)
    assert group.data(2) == [b"a"]


def test_a_node_that_may_vote_again_counts_again() -> None:
    group = led(timid=[2])
    group.isolate(1)
    group.propose(0, b"a")
    group[2].may_vote = True
    group.wait(0.3)
    assert group[0].commit_index == 2


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
    term = group[3].term
    group[3].leader_lost(group.now)
    group[3].step(1, PreVote(term + 1, 99, 99), group.now)
    assert group[3].take_effects().send == [(1, PreVoteReply(term, granted=False))]
    group[3].tick(group.now + 10)
    assert group[3].role is Role.FOLLOWER


def test_candidates_that_are_no_voters_are_ignored() -> None:
    group = Group(3, learners=1)
    group[0].step(3, Vote(9, 99, 99, transfer=False), group.now)
    assert (group[0].term, bool(group[0].take_effects())) == (0, False)
    group[0].step(6, Vote(9, 99, 99, transfer=False), group.now)
    assert (group[0].term, bool(group[0].take_effects())) == (0, False)


def test_learners_cannot_lead() -> None:
    group = led(learners=1)
    for term in (group[0].term, group[0].term + 1):
        with pytest.raises(MalformedMessage, match="cannot lead"):
            group[1].step(3, Heartbeat(term, 0, 0, 0), group.now)
    assert (group[1].term, group[1].leader) == (group[0].term, 0)


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
    assert (raft.role, raft.applied_own_noop) == (Role.LEADER, False)
    raft.step(1, AppendReply(1, 1, 1, counts=True), group.now)
    assert not raft.applied_own_noop
    group.drain()
    assert raft.applied_own_noop


# --- replication ----------------------------------------------------------------------------------


def test_appends_are_pipelined_up_to_the_window() -> None:
    group = led(config=RaftConfig(max_inflight=3))
    for number in range(10):
        group[0].propose([b"%d" % number], group.now)
        group.drain()
    sent = [to for _, to, message in group.queue if isinstance(message, Append)]
    assert sent.count(1) == 3
    group.settle()
    assert group.data(1) == [b"%d" % number for number in range(10)]


def test_appends_are_bounded_in_bytes() -> None:
    group = led(config=RaftConfig(max_append_bytes=300))
    group[0].propose([bytes(100)] * 7, group.now)
    group.drain()
    appends = [message for _, to, message in group.queue if to == 1 and isinstance(message, Append)]
    sizes = [len(message.entries) for message in appends]
    assert sizes == [2, 2, 2, 1]


def test_an_entry_above_the_bound_goes_alone() -> None:
    group = led(config=RaftConfig(max_append_bytes=10))
    group.propose(0, bytes(100), bytes(100))
    assert len(group.data(2)) == 2


def test_entries_go_out_before_the_leaders_own_save() -> None:
    group = led()
    group.hold_disk(0)
    group.propose(0, b"a")
    assert group.data(1) == [b"a"]


def test_nothing_is_applied_before_it_is_durable_here() -> None:
    group = led()
    group.hold_disk(0)
    group.propose(0, b"a")
    assert group[0].commit_index == 2
    assert group.data(0) == []
    group.release_disk(0)
    assert group.data(0) == [b"a"]


def test_a_commit_is_told_at_once() -> None:
    group = led()
    group.propose(0, b"a")
    assert group.data(1) == group.data(2) == [b"a"]
    assert group.now == pytest.approx(group.now)


def test_commits_of_entries_that_a_follower_lacks_are_ignored() -> None:
    group = led()
    group[1].step(0, Commit(group[0].term, 7, group[0].term), group.now)
    group[1].step(0, Heartbeat(group[0].term, 7, group[0].term, 0), group.now)
    assert group[1].commit_index == 1


def test_the_last_append_of_a_burst_may_be_lost() -> None:
    group = led()
    group.isolate(2)
    group.propose(0, b"a")
    group.mend()
    group.wait(0.12)
    assert group.data(2) == [b"a"]


def test_late_answers_of_an_old_stream_start_nothing() -> None:
    group = led()
    group.isolate(2)
    group.propose(0, b"a")
    term = group[0].term
    progress = group[0].progress(2)
    assert progress is not None
    assert progress.state is ProgressState.REPLICATE
    reject = AppendReject(term, 2, 2, 1, 1, 1)
    group[0].step(2, reject, group.now)
    once = group[0].take_effects().send
    group[0].step(2, reject, group.now)
    group[0].step(2, AppendReply(term, 2, 1, counts=True), group.now)
    assert [type(message) for _, message in once] == [Append]
    assert not group[0].take_effects()


def test_acknowledging_what_the_leader_lacks_is_nonsense() -> None:
    group = led()
    with pytest.raises(MalformedMessage, match="acknowledges"):
        group[0].step(1, AppendReply(group[0].term, 1, 99, counts=True), group.now)


@pytest.mark.parametrize(
    "entries",
    [
        (Entry(5, 1, b"a"),),
        (Entry(2, 1, b"a"), Entry(4, 1, b"b")),
        (Entry(2, 1, b"a"), Entry(3, 0, b"b")),
        (Entry(2, 9, b"a"),),
    ],
)
def test_appends_that_contradict_themselves_are_refused(entries: tuple[Entry, ...]) -> None:
    group = led()
    with pytest.raises(MalformedMessage):
        group[1].step(0, Append(group[0].term, 2, 1, 1, entries, 0), group.now)


def test_a_replaced_entry_does_not_count_as_saved_by_an_older_save() -> None:
    """Entry (2, 1) is being saved when term 2 replaces it and term 3 brings it back."""
    group = Group(3)
    raft = group[0]
    raft.step(1, Append(1, 1, 0, 0, (Entry(1, 1, b"1"), Entry(2, 1, b"2")), 0), group.now)
    first = raft.take_effects()
    raft.step(2, Append(2, 1, 1, 1, (Entry(2, 2, b"x"),), 0), group.now)
    second = raft.take_effects()
    raft.step(1, Append(3, 1, 1, 1, (Entry(2, 1, b"2"),), 2), group.now)
    third = raft.take_effects()
    raft.saved(first.token)
    assert raft.durable_index == 1
    raft.saved(second.token)
    assert raft.durable_index == 1
    raft.saved(third.token)
    assert raft.durable_index == 2


def test_saves_are_reported_in_order() -> None:
    group = Group(1)
    group.timeout(0)
    group[0].propose([b"a"], group.now)
    effects = group[0].take_effects()
    group[0].saved(effects.token)
    with pytest.raises(InvariantError):
        group[0].saved(effects.token - 1)
    with pytest.raises(InvariantError):
        group[0].saved(effects.token + 1)


def test_a_commit_is_saved_along_with_the_next_save() -> None:
    group = led()
    group[1].step(0, Append(group[0].term, 2, 1, 1, (Entry(2, group[0].term, b"a"),), 1), group.now)
    first = group[1].take_effects()
    group[1].saved(first.token)
    group[1].step(0, Commit(group[0].term, 2, group[0].term), group.now)
    effects = group[1].take_effects()
    assert (effects.hard_state, effects.must_sync) == (None, False)
    assert [entry.index for entry in effects.apply] == [2]
    group[1].step(0, Append(group[0].term, 2, 2, 1, (Entry(3, group[0].term, b"b"),), 2), group.now)
    state = group[1].take_effects().hard_state
    assert state is not None
    assert state.commit == 2


def test_single_node_groups_lead_at_once() -> None:
    group = Group(1)
    assert group[0].next_deadline() <= group.now
    group.timeout(0)
    assert group.leader == 0
    assert group.propose(0, b"a") == 2
    assert group.data(0) == [b"a"]


# --- reads ----------------------------------------------------------------------------------------


def test_reads_gathered_together_share_one_round() -> None:
    group = led()
    for context in (1, 2, 3):
        group[0].read_index(context, group.now)
    sent = group[0].take_effects().send
    assert [type(message) for _, message in sent] == [Heartbeat, Heartbeat]
    group.queue.extend((0, to, message) for to, message in sent)
    group.settle()
    assert group.nodes[0].reads == [(1, 1), (2, 1), (3, 1)]


def test_a_read_waits_for_the_terms_noop() -> None:
    group = led()
    group.propose(0, b"a")
    raft = group[1]
    raft.leader_lost(group.now)
    raft.tick(group.now + 0.06)
    raft.step(2, PreVoteReply(raft.term + 1, granted=True), group.now)
    save = raft.take_effects()
    raft.saved(save.token)
    raft.step(2, VoteReply(raft.term, granted=True), group.now)
    assert raft.role is Role.LEADER
    raft.read_index(5, group.now)
    sent = raft.take_effects()
    assert not any(isinstance(message, Heartbeat) for _, message in sent.send)
    raft.saved(sent.token)
    raft.step(2, AppendReply(raft.term, 1, raft.last_index, counts=True), group.now)
    sent = raft.take_effects()
    assert any(isinstance(message, Heartbeat) for _, message in sent.send)
    raft.step(2, HeartbeatReply(raft.term, 1, counts=True), group.now)
    assert raft.take_effects().reads == [(5, 3)]


def test_old_heartbeat_answers_prove_nothing() -> None:
    group = led()
    group[0].read_index(1, group.now)
    group[0].take_effects()
    group[0].step(1, HeartbeatReply(group[0].term, 0, counts=True), group.now)
    assert group[0].take_effects().reads == []
    group[0].step(1, HeartbeatReply(group[0].term, 1, counts=False), group.now)
    assert group[0].take_effects().reads == []
    group[0].step(1, HeartbeatReply(group[0].term, 1, counts=True), group.now)
    assert group[0].take_effects().reads == [(1, 1)]


def test_a_followers_read_goes_through_the_leader() -> None:
    group = led()
    group.propose(0, b"a")
    group[2].read_index(9, group.now)
    group.settle()
    assert group.nodes[2].reads == [(9, 2)]


def test_a_followers_read_that_gets_no_answer_expires() -> None:
    group = led()
    group.isolate(2)
    group[2].read_index(9, group.now)
    group.drain()
    assert group[2].next_deadline() <= group.now + 0.4
    group.wait(0.42)
    assert group.nodes[2].reads == [(9, None)]


def test_answers_to_reads_of_an_earlier_life_are_ignored() -> None:
    group = led()
    group[2].read_index(9, group.now)
    ((_, request),) = group[2].take_effects().send
    assert isinstance(request, ReadRequest)
    group[2].step(0, ReadReply(group[0].term, request.context + 1, 77), group.now)
    group[2].step(0, ReadReply(group[0].term, request.context, 1), group.now)
    group[2].step(0, ReadReply(group[0].term, request.context, 88), group.now)
    assert group[2].take_effects().reads == [(9, 1)]


def test_reads_are_lost_with_leadership() -> None:
    group = led()
    group.isolate(0)
    group[0].read_index(1, group.now)
    group.drain()
    group[0].read_index(2, group.now)
    group[0].step(1, Heartbeat(99, 0, 0, 0), group.now)
    assert group[0].take_effects().reads == [(1, None), (2, None)]


def test_forwarded_reads_are_lost_with_the_leader() -> None:
    group = led()
    group[2].read_index(9, group.now)
    group[2].leader_lost(group.now)
    assert group[2].take_effects().reads == [(9, None)]


# --- snapshots ------------------------------------------------------------------------------------

CHUNKED = RaftConfig(snapshot_chunk_bytes=10)


def behind() -> Group:
    """Node 2 lacks entries that the leader no longer has; the snapshot takes three chunks."""
    group = led(config=CHUNKED)
    group.isolate(2)
    group.propose(0, b"a", b"b", b"c")
    group.compact(0, 4, bytes(25))
    group.mend()
    return group


def test_a_follower_too_far_behind_gets_the_snapshot() -> None:
    group = behind()
    group.wait(0.2)
    assert group.nodes[2].snapshot == Snapshot(4, group[0].term, (0, 1, 2), (), bytes(25))
    assert (group[2].first_index, group[2].last_index, group[2].commit_index) == (5, 4, 4)
    group.propose(0, b"d")
    assert group.data(2) == [b"d"]


def test_chunks_go_one_at_a_time() -> None:
    group = behind()
    group[0].tick(group[0].next_deadline())
    most = 0
    for _ in range(40):
        group.drain()
        most = max(most, sum(isinstance(item[2], SnapshotChunk) for item in group.queue))
        if group.queue:
            group._deliver(*group.queue.popleft())
    assert most == 1
    assert group[2].last_index == 4


def test_a_lost_chunk_is_sent_again() -> None:
    group = behind()
    group.cuts = {(2, 0)}
    group.wait(0.2)
    group.mend()
    group.wait(1.0)
    assert group[2].last_index == 4


def test_a_follower_that_restarts_gets_the_snapshot_from_its_beginning() -> None:
    group = behind()
    group[0].tick(group[0].next_deadline())
    group.drain()
    while not any(isinstance(item[2], SnapshotReply) for item in group.queue):
        group._deliver(*group.queue.popleft())
        group.drain()
    progress = group[0].progress(2)
    assert progress is not None
    assert progress.state is ProgressState.SNAPSHOT
    group.queue.clear()
    group.crash(2)
    group.restart(2)
    group.wait(1.0)
    assert group[2].last_index == 4


def test_a_newer_snapshot_replaces_one_that_no_longer_meets_the_log() -> None:
    group = behind()
    group.cuts = {(2, 0)}
    group.wait(0.2)
    group.propose(0, b"d", b"e")
    group.compact(0, 6, bytes(30))
    group.mend()
    group.wait(1.0)
    assert group[2].last_index == 6
    assert group.nodes[2].snapshot is not None
    assert group.nodes[2].snapshot.last_index == 6


def test_chunks_of_different_snapshots_are_never_mixed() -> None:
    group = led(config=CHUNKED)
    term = group[0].term

    def chunk(last_index: int, offset: int, data: bytes) -> SnapshotChunk:
        return SnapshotChunk(term, last_index, term, (0, 1, 2), (), offset, 4, data)

    raft = group[1]
    raft.step(0, chunk(10, 0, b"AA"), group.now)
    raft.step(0, chunk(20, 2, b"BB"), group.now)
    raft.step(0, chunk(20, 0, b"bb"), group.now)
    sent = [message for _, message in raft.take_effects().send]
    assert sent == [
        SnapshotReply(term, 10, 0, 2),
        SnapshotReply(term, 20, 2, 0),
        SnapshotReply(term, 20, 0, 2),
    ]
    raft.step(0, chunk(20, 2, b"BB"), group.now)
    effects = raft.take_effects()
    assert effects.snapshot is not None
    assert effects.snapshot.data == b"bbBB"
    assert effects.must_sync


def test_a_snapshot_counts_only_when_it_is_saved() -> None:
    group = led()
    term = group[0].term
    raft = group[1]
    raft.step(0, SnapshotChunk(term, 9, term, (0, 1, 2), (), 0, 2, b"xy"), group.now)
    effects = raft.take_effects()
    assert (raft.durable_index, raft.commit_index) == (0, 9)
    assert effects.send_after_save == [(0, AppendReply(term, 0, 9, counts=True))]
    assert effects.apply == []
    raft.saved(effects.token)
    assert raft.durable_index == 9


def test_a_snapshot_of_what_is_there_only_commits_it() -> None:
    group = led()
    term = group[0].term
    raft = group[1]
    raft.step(0, Append(term, 2, 1, 1, (Entry(2, term, b"a"),), 1), group.now)
    raft.step(0, SnapshotChunk(term, 2, term, (0, 1, 2), (), 0, 2, b"xy"), group.now)
    effects = raft.take_effects()
    assert effects.snapshot is None
    assert raft.commit_index == 2


def test_impossible_chunks_are_refused() -> None:
    group = led()
    for last_term, offset in ((1, 3), (9, 2)):
        chunk = SnapshotChunk(group[0].term, 9, last_term, (0,), (), offset, 4, b"xy")
        with pytest.raises(MalformedMessage):
            group[1].step(0, chunk, group.now)


def test_without_snapshot_data_the_leader_says_that_it_wants_some() -> None:
    group = led()
    group.isolate(2)
    group.propose(0, b"a", b"b")
    group[0].compact(3, Snapshot(3, group[0].term, (0, 1, 2), (), b""))
    group.mend()
    group.wait(0.2)
    assert group[0].snapshot_wanted
    group[0].compact(3, Snapshot(3, group[0].term, (0, 1, 2), (), b"data"))
    assert not group[0].snapshot_wanted
    group.wait(0.3)
    assert group[2].last_index == 3


def test_compaction_keeps_a_tail_for_slow_followers() -> None:
    group = led()
    group.isolate(2)
    group.propose(0, b"a", b"b", b"c")
    group.compact(0, 1)
    assert (group[0].first_index, group[0].term_at(1)) == (2, group[0].term)
    group.mend()
    group.wait(0.2)
    assert group.nodes[2].snapshot is None
    assert group.data(2) == [b"a", b"b", b"c"]


def test_only_applied_entries_can_be_cut() -> None:
    group = led()
    group.isolate(0)
    group.propose(0, b"a")
    for index, last_index, last_term in ((2, 2, 1), (1, 2, 1), (2, 1, 1), (1, 1, 7)):
        with pytest.raises(InvariantError):
            group[0].compact(index, Snapshot(last_index, last_term, (0, 1, 2), (), b"x"))
    group[0].compact(1, Snapshot(1, 1, (0, 1, 2), (), b"x"))
    with pytest.raises(InvariantError):
        group[0].compact(0, Snapshot(0, 0, (0, 1, 2), (), b"x"))


# --- restarts -------------------------------------------------------------------------------------


def boot(snapshot: Snapshot | None, terms: dict[int, int], commit: int, **options: object) -> Raft:
    """A node with this snapshot, entries (index -> term) and commit index on its disk."""
    entries = [Entry(index, term, b"x") for index, term in terms.items()]
    return Raft(
        0,
        (0, 1, 2),
        config=RaftConfig(),
        random=random.Random(1),
        now=0.0,
        snapshot=snapshot,
        entries=entries,
        hard_state=HardState(5, None, commit),
        **options,  # type: ignore[arg-type]
    )


MARK = Snapshot(10, 3, (0, 1, 2), (), b"")


@pytest.mark.parametrize(
    ("terms", "first", "last"),
    [
        ({}, 11, 10),
        ({11: 3, 12: 4}, 11, 12),
        ({8: 2, 9: 3, 10: 3, 11: 3}, 9, 11),
        ({9: 3, 10: 3}, 10, 10),
        ({8: 2, 9: 2}, 11, 10),
        ({9: 2, 10: 2, 11: 2}, 11, 10),
        ({11: 2, 12: 2}, 11, 10),
    ],
    ids=["none", "behind it", "overlapping", "ending", "older", "contrary", "contrary behind it"],
)
def test_restart_from_snapshot_and_entries(terms: dict[int, int], first: int, last: int) -> None:
    raft = boot(MARK, terms, commit=10)
    assert (raft.first_index, raft.last_index) == (first, last)
    assert raft.commit_index == 10


@pytest.mark.parametrize("terms", [{8: 2, 9: 2}, {9: 2, 10: 2, 11: 2}, {11: 2, 12: 2}])
def test_a_snapshot_that_wins_over_entries_on_disk_is_said_to_replace_them(
    terms: dict[int, int],
) -> None:
    """Or the next restart would find new entries behind old ones, and drop both."""
    raft = boot(MARK, terms, commit=10)
    effects = raft.take_effects()
    assert (effects.snapshot, effects.must_sync, raft.durable_index) == (MARK, True, 0)
    raft.saved(effects.token)
    assert raft.durable_index == 10


def test_restart_applies_what_was_committed_behind_the_snapshot() -> None:
    raft = boot(MARK, {10: 3, 11: 3, 12: 4}, commit=11)
    assert [entry.index for entry in raft.take_effects().apply] == [11]


def test_restart_with_a_gap_or_lost_entries_is_refused() -> None:
    for terms, commit in (({12: 3}, 10), ({11: 3}, 12), ({11: 3, 13: 3}, 10)):
        with pytest.raises(InvariantError):
            boot(MARK, terms, commit)


def test_impossible_groups_and_configurations_are_refused() -> None:
    def make(node: int, voters: tuple[int, ...], learners: tuple[int, ...]) -> None:
        Raft(
            node,
            voters,
            learners=learners,
            config=RaftConfig(),
            random=random.Random(1),
            now=0.0,
            snapshot=None,
            entries=[],
            hard_state=HardState(0, None, 0),
        )

    for node, voters, learners in (
        (0, (), (0,)),
        (5, (0, 1), ()),
        (0, (0, 0), ()),
        (0, (0, 1), (1,)),
    ):
        with pytest.raises(ValueError, match=r"group|member"):
            make(node, voters, learners)
    for options in ({"heartbeat_s": 0.5}, {"heartbeat_s": 0.0}, {"max_inflight": 0}):
        with pytest.raises(ValueError, match=r"heartbeat|at least"):
            RaftConfig(**options)


def test_status_of_followers() -> None:
    group = led()
    group.propose(0, b"a")
    progress = group[0].progress(1)
    assert progress is not None
    assert (progress.match, progress.next, progress.state) == (2, 3, ProgressState.REPLICATE)
    assert group[1].progress(0) is None
    assert group[0].progress(0) is None
    assert group[0].membership == ((0, 1, 2), ())
    with pytest.raises(LookupError):
        group[0].term_at(99)
