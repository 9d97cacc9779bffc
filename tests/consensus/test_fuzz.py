"""Whatever a peer says: a node goes on, or says what is wrong with the message or the group."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.consensus import HistoryConflict, InvariantError, MalformedMessage
from samelog.consensus.messages import (
    Append,
    AppendReject,
    AppendReply,
    Commit,
    Heartbeat,
    HeartbeatReply,
    PreVote,
    PreVoteReply,
    Quiet,
    RaftMessage,
    SnapshotChunk,
)
from tests.consensus.group import Group
from tests.consensus.test_messages import NUMBERS, messages
from tests.examples import at_most

FROM_A_LEADER = (Append, Commit, Heartbeat, Quiet, SnapshotChunk)
SMALL = st.integers(0, 7)


def grown(role: int) -> tuple[Group, int]:
    """A group with some history, and the number of its leader, a follower, or a candidate."""
    group = Group(3, learners=1)
    group.elect(0)
    group.propose(0, b"a", b"b", b"c")
    group.compact(0, 3)
    group.compact(1, 2)
    if role == 2:
        group.isolate(1)
        group[1].leader_lost(group.now)
        group.timeout(1)
        return group, 1
    return group, role


@settings(max_examples=at_most(300), deadline=None)
@given(
    st.integers(0, 2),
    st.lists(st.tuples(st.integers(0, 6), messages(SMALL) | messages(NUMBERS)), max_size=8),
)
def test_any_message_is_handled(role: int, script: list[tuple[int, RaftMessage]]) -> None:
    group, number = grown(role)
    raft = group[number]
    for sender, message in script:
        try:
            raft.step(sender, message, group.now)
        except MalformedMessage:
            continue
        except (HistoryConflict, InvariantError):
            # only a message that no member of a sound group can send may end the replica
            assert isinstance(message, FROM_A_LEADER)
            assert message.term >= raft.term
            return
        while effects := raft.take_effects():
            raft.saved(effects.token)
        assert raft.commit_index <= raft.last_index
        assert raft.applied_index <= raft.commit_index


@settings(max_examples=at_most(200), deadline=None)
@given(st.integers(0, 2), st.lists(st.tuples(SMALL, messages(SMALL)), max_size=8))
def test_messages_of_old_terms_change_nothing(
    role: int, script: list[tuple[int, RaftMessage]]
) -> None:
    group, number = grown(role)
    raft = group[number]
    group.drain()
    before = (raft.term, raft.role, raft.leader, raft.commit_index, group.log(number))
    for sender, message in script:
        fields = [getattr(message, name) for name in message.__struct_fields__]
        stale = type(message)(0, *fields[1:])
        if not isinstance(stale, PreVoteReply):
            raft.step(sender, stale, group.now)
    while effects := raft.take_effects():
        assert not effects.entries
        assert effects.snapshot is None
        assert effects.apply == []
    after = (raft.term, raft.role, raft.leader, raft.commit_index, group.log(number))
    assert after == before


@settings(max_examples=at_most(200), deadline=None)
@given(st.data())
def test_old_and_repeated_answers_never_break_a_leader(data: st.DataObject) -> None:
    """Any true answer, from any moment of the term, as often and as late as you like."""
    group = Group(3)
    group.elect(0)
    group.propose(0, b"a", b"b", b"c")
    term, last = group[0].term, group[0].last_index
    answers = (
        st.builds(AppendReply, st.just(term), SMALL, st.integers(0, last), st.booleans())
        | st.builds(AppendReject, st.just(term), SMALL, SMALL, SMALL, st.just(term), SMALL)
        | st.builds(HeartbeatReply, st.just(term), st.just(0), st.booleans())
        | st.builds(PreVote, st.just(term), SMALL, SMALL)
    )
    for sender, answer in data.draw(st.lists(st.tuples(st.integers(1, 2), answers), max_size=12)):
        group[0].step(sender, answer, group.now)
        group.drain()
    group.settle()
    assert group.leader == 0
    group.wait(0.3)
    group.propose(0, b"d")
    group.wait(0.3)
    assert group.data(1) == group.data(2) == [b"a", b"b", b"c", b"d"]
