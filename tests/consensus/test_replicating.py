"""What our Raft has beyond the paper's figure 2 in replication and reads, promise by promise."""

from __future__ import annotations

import pytest

from samelog.consensus import (
    Configuration,
    Entry,
    InvariantError,
    MalformedMessage,
    ProgressState,
    ProgressStatus,
    RaftConfig,
    Role,
)
from samelog.consensus.messages import (
    Append,
    AppendReject,
    AppendReply,
    Commit,
    Heartbeat,
    HeartbeatReply,
    PreVoteReply,
    ReadReply,
    ReadRequest,
    VoteReply,
)
from tests.consensus.group import Group, led

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


def sizes_under_way(group: Group, to: int) -> list[list[int]]:
    """Of the entries of each append to a node."""
    group.drain()
    appends = [message for _, node, message in group.queue if node == to]
    return [
        [len(entry.data) for entry in message.entries]
        for message in appends
        if isinstance(message, Append)
    ]


def test_nothing_is_under_way_beside_a_long_entry() -> None:
    group = led(config=RaftConfig(max_append_bytes=100))
    for size in (1, 200, 300, 1, 1):
        group[0].propose([bytes(size)], group.now)
        group.drain()
    seen = []
    while under_way := sizes_under_way(group, 1):
        seen.append(under_way)
        group.deliver()
        group.drain()
        group.deliver()
    assert seen == [[[1]], [[200]], [[300]], [[1, 1]]]
    group.settle()
    assert [len(data) for data in group.data(2)] == [1, 200, 300, 1, 1]


def test_a_long_entry_is_not_sent_again_before_it_can_have_come() -> None:
    group = led(config=RaftConfig(max_append_bytes=100))
    group[0].propose([bytes(200)], group.now)
    assert sizes_under_way(group, 1) == [[200]]
    group.queue.clear()
    sent: list[float] = []
    begin = group.now
    while not group.data(1):
        group.now += 0.02
        for number in range(3):
            group[number].tick(group.now)
        if sizes_under_way(group, 1):
            sent.append(group.now - begin)
        group.deliver()
    assert sent[0] >= group.config.election_timeout_s
    assert group.now - begin < 2 * group.config.election_timeout_s


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


def test_an_answer_that_crosses_a_rejection_leaves_nobody_behind() -> None:
    group = led()
    group.isolate(2)
    group.propose(0, b"a")
    raft, term = group[0], group[0].term
    raft.step(2, AppendReject(term, 2, 2, 1, 1, 1), group.now)
    raft.step(2, AppendReply(term, 2, 2, counts=True), group.now)
    raft.take_effects()
    raft.step(2, HeartbeatReply(term, 0, counts=True), group.now)
    (asked,) = raft.take_effects().send
    assert asked == (2, Append(term, 3, 2, term, (), 2))


def test_who_acknowledges_what_the_leader_lacks_is_remembered_and_not_counted() -> None:
    group = led()
    before = group[0].progress(1)
    group[0].step(1, AppendReply(group[0].term, 1, 99, counts=True), group.now)
    assert group[0].trust.ahead == {1: 99}
    assert before is not None
    assert group[0].progress(1) == ProgressStatus(
        before.match, before.next, before.state, group.now
    )


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


def test_a_read_is_answered_once_those_who_are_silent_vote_no_more() -> None:
    group = led()
    group[0].propose_configuration(Configuration((0, 1), (), b""), group.now)
    group.settle()
    group.isolate(1)
    group[0].read_index(1, group.now)
    group.drain()
    group[0].propose_configuration(Configuration((0,), (), b""), group.now)
    group.drain()
    assert group.nodes[0].reads == []
    group.wait(0.1)
    assert group.nodes[0].reads == [(1, 2)]


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
