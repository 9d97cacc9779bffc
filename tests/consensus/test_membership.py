"""Changing who belongs to the group: one at a time, at once when appended, undone when replaced."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.consensus import (
    ChangePending,
    Configuration,
    Entry,
    HardState,
    HistoryConflict,
    MalformedMessage,
    Membership,
    Raft,
    RaftConfig,
    Role,
    Snapshot,
    decode_configuration,
)
from samelog.consensus.membership import (
    Memberships,
    check_change,
    encode_configuration,
    is_configuration,
)
from samelog.consensus.messages import (
    Append,
    AppendReply,
    HeartbeatReply,
    PreVoteReply,
    SnapshotChunk,
    VoteReply,
)
from tests.consensus.group import Group, led

NODES = st.lists(st.integers(0, 8), max_size=6, unique=True).map(tuple)
EVERYBODY = Configuration((0, 1, 2), ())


def grown() -> Group:
    """Four voters, led by node 0; node 3 came later."""
    group = led()
    group.join()
    group.configure(0, (0, 1, 2), (3,))
    group.wait(0.2)
    group.configure(0, (0, 1, 2, 3))
    return group


# --- values ---------------------------------------------------------------------------------------


@given(NODES, NODES, st.binary(max_size=20))
def test_configurations_come_back_or_are_refused(
    voters: tuple[int, ...], learners: tuple[int, ...], context: bytes
) -> None:
    configuration = Configuration(voters, learners, context)
    data = encode_configuration(configuration)
    assert is_configuration(data)
    if voters and not set(voters) & set(learners):
        assert decode_configuration(data) == configuration
    else:
        with pytest.raises(MalformedMessage):
            decode_configuration(data)


@given(NODES.filter(bool), NODES.filter(bool))
def test_majorities_of_allowed_neighbours_share_a_voter(
    old: tuple[int, ...], new: tuple[int, ...]
) -> None:
    try:
        check_change(Membership(old, ()), Membership(new, ()))
    except ValueError:
        return
    everybody = len({*old, *new})
    assert len(old) // 2 + 1 + len(new) // 2 + 1 > everybody


@given(st.lists(st.tuples(st.sampled_from("acs"), st.integers(0, 3)), max_size=30))
def test_memberships_are_those_of_the_log(steps: list[tuple[str, int]]) -> None:
    """Twin: a plain list of (index, voters), searched from its end."""
    known, twin, last, base = Memberships(0, Membership((0,), ())), [(0, (0,))], 0, 0
    for number, (step, value) in enumerate(steps, 1):
        if step == "a":
            last += 1 + value
            known.append([(last, Membership((number,), ()))])
            twin.append((last, (number,)))
        elif step == "c":
            last = max(base, last - value)
            known.cut_from(last + 1)
            twin = [item for item in twin if item[0] <= last] or twin[:1]
        else:
            base = min(last, base + value)
            known.compact(base)
        for index in range(base, last + 2):
            assert known.at(index).voters == [v for i, v in twin if i <= index][-1]
        assert (known.index, known.current.voters) == twin[-1]


# --- rules ----------------------------------------------------------------------------------------


def test_no_change_before_the_leaders_no_op_is_committed() -> None:
    """The flaw that Ongaro found in 2015: two leaders could change the group side by side."""
    raft = Raft(
        0,
        (0, 1, 2),
        config=RaftConfig(),
        random=random.Random(1),
        now=0.0,
        snapshot=None,
        entries=[],
        hard_state=HardState(0, None, 0),
    )
    raft.tick(1.0)
    raft.step(1, PreVoteReply(1, granted=True), 1.0)
    raft.saved(raft.take_effects().token)
    raft.step(1, VoteReply(1, granted=True), 1.0)
    assert raft.role is Role.LEADER
    with pytest.raises(ChangePending):
        raft.propose_configuration(EVERYBODY, 1.0)
    raft.saved(raft.take_effects().token)
    raft.step(1, AppendReply(1, 1, 1, counts=True), 1.0)
    assert raft.propose_configuration(EVERYBODY, 1.0) == 2


def test_a_configuration_cannot_be_smuggled_in() -> None:
    group = led()
    with pytest.raises(ValueError, match="propose_configuration"):
        group[0].propose([encode_configuration(EVERYBODY)], group.now)


def test_an_unreadable_configuration_is_the_leaders_fault() -> None:
    group = led()
    entry = Entry(2, group[0].term, b"\xc1nonsense")
    append = Append(group[0].term, 1, 1, group[0].term, (entry,), 1)
    with pytest.raises(MalformedMessage):
        group[1].step(0, append, group.now)
    assert group[1].last_index == 1


def test_a_snapshot_of_an_impossible_group_is_refused() -> None:
    group = led()
    chunk = SnapshotChunk(group[0].term, 9, 1, (), (), 0, 1, b"x")
    with pytest.raises(MalformedMessage, match="membership"):
        group[1].step(0, chunk, group.now)


def test_a_majority_is_one_of_the_new_group_at_once() -> None:
    group = grown()
    group.isolate(1)
    group.isolate(2)
    committed = group[0].commit_index
    group.propose(0, b"a")
    assert group[0].commit_index == committed
    group.mend()
    group.wait(0.2)
    assert group.data(3)[-1] == b"a"


def test_the_newcomer_can_lead() -> None:
    group = grown()
    group[0].transfer_leadership(3, group.now)
    group.settle()
    assert group.leader == 3


def test_what_a_learner_acknowledged_counts_when_it_is_promoted() -> None:
    group = led()
    group.join()
    group.configure(0, (0, 1, 2), (3,))
    group.wait(0.2)
    group.isolate(2)
    assert group.configure(0, (0, 1, 2, 3)) == group[0].commit_index


def test_a_removed_leader_leads_until_its_removal_is_committed_without_it() -> None:
    group = led()
    group.isolate(0)
    group.configure(0, (1, 2))
    assert group.leader == 0
    group.mend()
    group.wait(0.2)
    assert group.leader in (1, 2)


def test_a_leader_that_alone_holds_its_removal_can_lead_again_to_commit_it() -> None:
    group = led(voters=2)
    group.isolate(0)
    group.configure(0, (1,))
    group.wait(1.0)
    assert group.leader is None
    group.mend()
    group.wait(2.0)
    assert [group.leader] == [1]
    assert group[1].membership == Membership((1,), ())


def test_a_removed_node_never_campaigns_once_it_knows() -> None:
    group = led()
    group.configure(0, (1, 2))
    group.isolate(0)
    group.wait(3.0)
    assert (group[0].role, group[0].term) == (Role.FOLLOWER, 1)


def test_answers_of_a_removed_node_change_nothing() -> None:
    group = led()
    term = group[0].term
    group.configure(0, (0, 1))
    for message in (
        AppendReply(term, 1, 1, counts=True),
        HeartbeatReply(term + 1, 0, counts=True),
        VoteReply(term + 1, granted=False),
    ):
        group[0].step(2, message, group.now)
    assert (group[0].role, group[0].term) == (Role.LEADER, term)


def test_alone_at_last() -> None:
    group = led()
    group.configure(0, (0, 1))
    group.configure(0, (0,))
    group.propose(0, b"a")
    assert group.data(0)[-1] == b"a"
    group.crash(0)
    group.restart(0)
    group.wait(0.1)
    assert group.leader == 0


def test_a_restart_knows_the_members_from_the_log_and_from_a_snapshot() -> None:
    group = grown()
    group.crash(1)
    group.restart(1)
    assert group[1].membership == Membership((0, 1, 2, 3), ())
    group.compact(3, 3)
    group.crash(3)
    group.restart(3)
    assert group[3].membership == Membership((0, 1, 2, 3), ())


def test_a_snapshot_says_who_belonged_to_the_group_then() -> None:
    group = led()
    group.propose(0, b"a")
    before = group[0].applied_index
    group.configure(0, (0, 1))
    assert group[0].membership_at(before) == Membership((0, 1, 2), ())
    assert group[0].membership_at(before + 1) == Membership((0, 1), ())


def test_an_installed_snapshot_replaces_the_members() -> None:
    group = led()
    group[2].step(0, SnapshotChunk(group[0].term, 9, 1, (0, 2), (5,), 0, 1, b"x"), group.now)
    assert group[2].membership == Membership((0, 2), (5,))


def test_a_committed_configuration_is_never_replaced() -> None:
    group = led()
    group.configure(0, (0, 1))
    term = group[1].term + 1
    entries = (Entry(2, term, b""),)
    with pytest.raises(HistoryConflict):
        group[1].step(0, Append(term, 1, 1, 1, entries, 0), group.now)


def test_a_joining_node_waits_and_disturbs_nobody() -> None:
    raft = Raft(
        7,
        (),
        config=RaftConfig(),
        random=random.Random(1),
        now=0.0,
        snapshot=None,
        entries=[],
        hard_state=HardState(0, None, 0),
    )
    for second in range(10):
        raft.tick(float(second))
    assert (raft.role, raft.term, raft.take_effects().send) == (Role.FOLLOWER, 0, [])
    group = Group(1)
    group[0].tick(group.now + 5)
    snapshot = Snapshot(3, 1, (0,), (7,), b"s")
    chunk = SnapshotChunk(1, 3, 1, snapshot.voters, snapshot.learners, 0, 1, b"s")
    raft.step(0, chunk, 11.0)
    assert raft.membership == Membership((0,), (7,))
