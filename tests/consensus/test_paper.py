"""The rules of figure 2 of the Raft paper (Ongaro and Ousterhout 2014), a test each, in order."""

from __future__ import annotations

import random

import pytest

from samelog.consensus import (
    Effects,
    Entry,
    HardState,
    HistoryConflict,
    NotLeader,
    Raft,
    RaftConfig,
    Role,
)
from samelog.consensus.messages import (
    Append,
    AppendReject,
    AppendReply,
    Commit,
    Heartbeat,
    PreVoteReply,
    RaftMessage,
    SnapshotChunk,
    Vote,
    VoteReply,
)
from tests.consensus.group import Group

NOW = 50.0


def make(
    number: int = 0,
    *,
    terms: tuple[int, ...] = (),
    term: int | None = None,
    vote: int | None = None,
    commit: int = 0,
    voters: int = 3,
) -> Raft:
    """A node whose log has entries of these terms, all of them on disk."""
    entries = [Entry(index, each, b"%d" % index) for index, each in enumerate(terms, 1)]
    current = term if term is not None else (terms[-1] if terms else 0)
    return Raft(
        number,
        range(voters),
        config=RaftConfig(),
        random=random.Random(1),
        now=NOW,
        snapshot=None,
        entries=entries,
        hard_state=HardState(current, vote, commit),
    )


def drain(raft: Raft) -> list[Effects]:
    """All effects, each batch saved at once."""
    batches = []
    while effects := raft.take_effects():
        batches.append(effects)
        raft.saved(effects.token)
    return batches


def replies(raft: Raft) -> list[RaftMessage]:
    """All messages the node sends, once everything is saved."""
    return [
        message
        for effects in drain(raft)
        for _, message in [*effects.send, *effects.send_after_save]
    ]


def terms_of(raft: Raft) -> list[int]:
    return [raft.term_at(index) for index in range(raft.first_index, raft.last_index + 1)]


# --- state ----------------------------------------------------------------------------------------


def test_term_and_vote_are_saved_before_the_vote_is_told() -> None:
    raft = make()
    raft.step(1, Vote(5, 0, 0, transfer=False), NOW)
    effects = raft.take_effects()
    assert effects.hard_state == HardState(5, 1, 0)
    assert effects.must_sync
    assert effects.send == []
    assert effects.send_after_save == [(1, VoteReply(5, granted=True))]


def test_entries_are_saved_before_they_are_acknowledged() -> None:
    raft = make()
    raft.step(1, Append(1, 1, 0, 0, (Entry(1, 1, b"a"),), 0), NOW)
    effects = raft.take_effects()
    assert effects.entries == [Entry(1, 1, b"a")]
    assert effects.must_sync
    assert effects.send == []
    assert effects.send_after_save == [(1, AppendReply(1, 1, 1, counts=True))]


def test_a_restarted_node_keeps_term_vote_and_log() -> None:
    raft = make(terms=(1, 1, 2), term=4, vote=2)
    assert (raft.term, raft.last_index, raft.role) == (4, 3, Role.FOLLOWER)
    raft.step(1, Vote(4, 9, 9, transfer=False), NOW)
    assert replies(raft) == [VoteReply(4, granted=False)]


def test_commit_index_grows_only() -> None:
    raft = make(terms=(1, 1))
    raft.step(1, Append(1, 1, 2, 1, (), 2), NOW)
    raft.step(1, Append(1, 1, 2, 1, (), 1), NOW)
    assert raft.commit_index == 2


# --- AppendEntries RPC ----------------------------------------------------------------------------


def test_append_1_of_an_old_term_is_refused() -> None:
    raft = make(terms=(1,), term=3)
    raft.step(1, Append(2, 1, 1, 1, (Entry(2, 2, b"x"),), 0), NOW)
    (reply,) = replies(raft)
    assert reply.term == 3
    assert raft.last_index == 1


@pytest.mark.parametrize(("prev_index", "prev_term"), [(4, 2), (3, 1), (9, 2)])
def test_append_2_is_refused_without_the_previous_entry(prev_index: int, prev_term: int) -> None:
    raft = make(terms=(1, 1, 2))
    raft.step(1, Append(2, 7, prev_index, prev_term, (), 0), NOW)
    (reject,) = replies(raft)
    assert isinstance(reject, AppendReject)
    assert (reject.stream, reject.prev_index, reject.last_index) == (7, prev_index, 3)


def test_append_3_a_conflict_deletes_the_entry_and_all_behind_it() -> None:
    raft = make(terms=(1, 1, 2, 2))
    raft.step(1, Append(3, 1, 2, 1, (Entry(3, 3, b"new"),), 0), NOW)
    assert terms_of(raft) == [1, 1, 3]
    assert drain(raft)[0].entries == [Entry(3, 3, b"new")]


def test_append_3_entries_that_agree_are_kept_though_the_message_is_short() -> None:
    raft = make(terms=(1, 1, 1, 1))
    raft.step(1, Append(1, 1, 0, 0, (Entry(1, 1, b"1"), Entry(2, 1, b"2")), 0), NOW)
    assert raft.last_index == 4
    assert replies(raft) == [AppendReply(1, 1, 2, counts=True)]


def test_append_4_what_is_not_there_is_appended() -> None:
    raft = make(terms=(1, 1))
    raft.step(1, Append(1, 1, 1, 1, (Entry(2, 1, b"2"), Entry(3, 1, b"3")), 0), NOW)
    assert drain(raft)[0].entries == [Entry(3, 1, b"3")]


@pytest.mark.parametrize(("leader_commit", "expected"), [(1, 1), (2, 2), (9, 2)])
def test_append_5_commit_is_the_leaders_or_the_last_new_entry(
    leader_commit: int, expected: int
) -> None:
    raft = make(terms=(1, 1, 1))
    raft.step(1, Append(1, 1, 1, 1, (Entry(2, 1, b"2"),), leader_commit), NOW)
    assert raft.commit_index == expected


def test_a_committed_entry_is_never_replaced() -> None:
    raft = make(terms=(1, 1), commit=2)
    with pytest.raises(HistoryConflict, match="entry 2 is committed here with term 1"):
        raft.step(1, Append(3, 1, 1, 1, (Entry(2, 3, b"x"),), 0), NOW)


@pytest.mark.parametrize(
    "message",
    [
        Append(3, 1, 1, 2, (), 0),
        Append(3, 1, 2, 2, (), 0),
        Heartbeat(3, 2, 2, 1),
        Commit(3, 2, 2),
        SnapshotChunk(3, 2, 2, (0, 1, 2), (), 0, 4, b"body"),
    ],
)
def test_another_history_is_noticed_without_entries(message: RaftMessage) -> None:
    raft = make(terms=(1, 1, 1), commit=2)
    with pytest.raises(HistoryConflict, match="is committed here with term 1"):
        raft.step(1, message, NOW)


def test_appends_are_idempotent() -> None:
    raft = make()
    append = Append(1, 1, 0, 0, (Entry(1, 1, b"a"), Entry(2, 1, b"b")), 1)
    raft.step(1, append, NOW)
    raft.step(1, append, NOW)
    (effects,) = drain(raft)[:1]
    assert effects.entries == list(append.entries)
    assert raft.last_index == 2


# --- RequestVote RPC ------------------------------------------------------------------------------


def test_vote_1_for_an_old_term_is_refused() -> None:
    raft = make(term=5)
    raft.step(1, Vote(4, 9, 9, transfer=False), NOW)
    assert replies(raft) == [VoteReply(5, granted=False)]


def test_vote_2_one_vote_in_a_term() -> None:
    raft = make()
    raft.step(1, Vote(1, 0, 0, transfer=False), NOW)
    raft.step(2, Vote(1, 0, 0, transfer=False), NOW)
    raft.step(1, Vote(1, 0, 0, transfer=False), NOW)
    answers = [reply.granted for reply in replies(raft) if isinstance(reply, VoteReply)]
    assert answers == [True, False, True]


@pytest.mark.parametrize(
    ("last_index", "last_term", "granted"),
    [(3, 2, True), (9, 1, False), (2, 2, False), (1, 3, True), (4, 2, True)],
)
def test_vote_2_only_for_logs_at_least_as_new(
    last_index: int, last_term: int, granted: bool
) -> None:
    raft = make(terms=(1, 1, 2))
    raft.step(1, Vote(7, last_index, last_term, transfer=False), NOW)
    assert replies(raft) == [VoteReply(7, granted=granted)]


# --- rules for all servers ------------------------------------------------------------------------


def test_all_committed_entries_are_applied_in_order_and_once() -> None:
    raft = make(terms=(1, 1, 1))
    raft.step(1, Append(1, 1, 3, 1, (), 2), NOW)
    first = [entry.index for effects in drain(raft) for entry in effects.apply]
    raft.step(1, Append(1, 1, 3, 1, (), 3), NOW)
    second = [entry.index for effects in drain(raft) for entry in effects.apply]
    assert (first, second) == ([1, 2], [3])


@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.CANDIDATE, Role.LEADER])
def test_a_higher_term_makes_a_follower(role: Role) -> None:
    raft = make()
    if role is not Role.FOLLOWER:
        campaign(raft)
    if role is Role.LEADER:
        raft.step(1, VoteReply(1, granted=True), NOW)
    drain(raft)
    assert raft.role is role
    raft.step(2, Heartbeat(9, 0, 0, 0), NOW)
    assert (raft.role, raft.term, raft.leader) == (Role.FOLLOWER, 9, 2)


# --- followers ------------------------------------------------------------------------------------


def test_a_follower_campaigns_when_it_hears_nothing() -> None:
    raft = make()
    raft.tick(raft.next_deadline() - 0.001)
    before = raft.role
    raft.tick(raft.next_deadline())
    assert (before, raft.role) == (Role.FOLLOWER, Role.PRE_CANDIDATE)


@pytest.mark.parametrize("message", [Heartbeat(1, 0, 0, 0), Append(1, 1, 0, 0, (), 0)])
def test_hearing_the_leader_restarts_the_timer(message: RaftMessage) -> None:
    raft = make()
    raft.step(1, message, NOW + 0.3)
    assert raft.next_deadline() >= NOW + 0.7


def test_granting_a_vote_restarts_the_timer() -> None:
    raft = make()
    raft.step(1, Vote(1, 0, 0, transfer=False), NOW + 0.3)
    assert raft.next_deadline() >= NOW + 0.7


# --- candidates -----------------------------------------------------------------------------------


def campaign(raft: Raft) -> None:
    """Let the timer pass and one pre-vote come in."""
    raft.tick(NOW + 1.0)
    raft.step(1, PreVoteReply(raft.term + 1, granted=True), NOW + 1.0)


def test_a_candidate_raises_its_term_votes_for_itself_and_asks_all() -> None:
    raft = make(terms=(1, 2))
    campaign(raft)
    effects = next(batch for batch in drain(raft) if batch.send_after_save)
    assert effects.hard_state == HardState(3, 0, 0)
    vote = Vote(3, 2, 2, transfer=False)
    assert effects.send_after_save == [(1, vote), (2, vote)]


def test_a_majority_of_votes_makes_a_leader() -> None:
    raft = make(voters=5)
    raft.tick(NOW + 1.0)
    for voter in (1, 2):
        raft.step(voter, PreVoteReply(1, granted=True), NOW)
    drain(raft)
    raft.step(1, VoteReply(1, granted=True), NOW)
    raft.step(1, VoteReply(1, granted=True), NOW)
    before = raft.role
    raft.step(2, VoteReply(1, granted=True), NOW)
    assert (before, raft.role) == (Role.CANDIDATE, Role.LEADER)


def test_the_own_vote_counts_only_when_it_is_saved() -> None:
    raft = make()
    campaign(raft)
    effects = raft.take_effects()
    raft.step(1, VoteReply(1, granted=True), NOW)
    before = raft.role
    raft.saved(effects.token)
    assert (before, raft.role) == (Role.CANDIDATE, Role.LEADER)


def test_a_candidate_follows_the_leader_of_its_term() -> None:
    raft = make()
    campaign(raft)
    raft.step(2, Heartbeat(1, 0, 0, 0), NOW)
    assert (raft.role, raft.leader) == (Role.FOLLOWER, 2)


def test_a_candidate_without_majority_campaigns_again() -> None:
    raft = make()
    campaign(raft)
    drain(raft)
    raft.tick(NOW + 2.0)
    assert raft.role is Role.PRE_CANDIDATE


def test_votes_of_other_terms_do_not_count() -> None:
    raft = make(term=3)
    campaign(raft)
    drain(raft)
    raft.step(1, VoteReply(3, granted=True), NOW)
    assert raft.role is Role.CANDIDATE


# --- leaders --------------------------------------------------------------------------------------


def test_a_leader_announces_itself_at_once_and_then_regularly() -> None:
    group = Group(3)
    group.elect(0)
    assert [group[number].leader for number in range(3)] == [0, 0, 0]
    deadline = group[0].next_deadline()
    assert deadline <= group.now + group.config.heartbeat_s
    group[0].tick(deadline)
    sent = group[0].take_effects().send
    assert [(to, type(message)) for to, message in sent] == [(1, Heartbeat), (2, Heartbeat)]


def test_a_proposal_is_appended_replicated_and_applied() -> None:
    group = Group(3)
    group.elect(0)
    assert group.propose(0, b"a", b"b") == 2
    assert [group.data(number) for number in range(3)] == [[b"a", b"b"]] * 3


def test_only_a_leader_takes_proposals_and_others_name_it() -> None:
    group = Group(3)
    group.elect(0)
    with pytest.raises(NotLeader) as caught:
        group[1].propose([b"x"], group.now)
    assert caught.value.hint == 0


def test_a_follower_that_lags_is_fed_from_where_it_stands() -> None:
    group = Group(3)
    group.elect(0)
    group.isolate(2)
    for number in range(5):
        group.propose(0, b"%d" % number)
    group.mend()
    group.wait(0.2)
    assert group.log(2) == group.log(0)


def test_conflicts_are_found_by_stepping_back_over_whole_terms() -> None:
    """Figure 7 (f): a follower with entries of terms the leader never saw; few probes suffice."""
    leader_terms = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)
    group = Group(3)
    group.nodes[0].raft = make(0, terms=leader_terms)
    group.nodes[1].raft = make(1, terms=leader_terms)
    group.nodes[2].raft = make(2, terms=(1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3), term=6)
    group.elect(0)
    assert group.log(2) == group.log(0)
    assert sum("AppendReject" in line for line in group.trace) <= 2


def test_entries_commit_when_a_majority_has_saved_them() -> None:
    group = Group(5)
    group.elect(0)
    for number in (1, 2, 3):
        group.hold_disk(number)
    group.propose(0, b"a")
    assert group[0].commit_index == 1
    group.release_disk(3)
    assert group[0].commit_index == 2


def test_figure_8_entries_of_older_terms_are_not_committed_by_counting() -> None:
    """A majority holds (2, 2), yet the leader of term 4 commits it only with its own no-op."""
    group = Group(5)
    for number, terms in enumerate([(1, 2), (1, 2), (1, 2), (1,), (1,)]):
        group.nodes[number].raft = make(number, terms=terms, term=3, commit=1, voters=5)
    for follower in (1, 2, 3, 4):
        group.hold_disk(follower)
    raft = group[0]
    raft.tick(NOW + 100)
    for voter in (3, 4):
        raft.step(voter, PreVoteReply(4, granted=True), NOW)
    drain(raft)
    for voter in (3, 4):
        raft.step(voter, VoteReply(4, granted=True), NOW)
    assert raft.role is Role.LEADER
    drain(raft)
    for voter in (1, 2):
        raft.step(voter, AppendReply(4, 1, 2, counts=True), NOW)
    assert raft.commit_index == 1
    for voter in (1, 2):
        raft.step(voter, AppendReply(4, 2, 3, counts=True), NOW)
    assert raft.commit_index == 3


def test_two_leaders_in_one_term_are_two_histories() -> None:
    raft = make()
    raft.step(1, Heartbeat(1, 0, 0, 0), NOW)
    with pytest.raises(HistoryConflict, match="both lead term 1"):
        raft.step(2, Heartbeat(1, 0, 0, 0), NOW)
