"""What our Raft has beyond the paper's figure 2 in snapshots and restarts, promise by promise."""

from __future__ import annotations

import random

import pytest

from samelog.consensus import (
    Entry,
    HardState,
    InvariantError,
    MalformedMessage,
    Membership,
    ProgressState,
    Raft,
    RaftConfig,
    Snapshot,
)
from samelog.consensus.messages import (
    Append,
    AppendReply,
    Heartbeat,
    ReadRequest,
    SnapshotChunk,
    SnapshotReply,
)
from tests.consensus.group import Group, led

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


def test_what_is_sent_is_read_then_and_only_its_mark_is_kept() -> None:
    group = led(config=CHUNKED)
    leader = group.nodes[0]
    group[0].read_snapshots(lambda: leader.snapshot)
    group.isolate(2)
    group.propose(0, b"a", b"b", b"c")
    group.compact(0, 4, bytes(25))
    assert group[0].snapshots._newest == Snapshot(4, group[0].term, (0, 1, 2), (), b"")
    group.mend()
    group.wait(0.2)
    assert group.nodes[2].snapshot == leader.snapshot
    assert group[2].last_index == 4


@pytest.mark.parametrize("read", [None, Snapshot(3, 1, (0, 1, 2), (), bytes(9))])
def test_what_cannot_be_read_or_does_not_meet_the_log_is_not_sent(read: Snapshot | None) -> None:
    group = led(config=CHUNKED)
    leader = group.nodes[0]
    found: list[Snapshot | None] = [read]
    group[0].read_snapshots(lambda: found[0])
    group.isolate(2)
    group.propose(0, b"a", b"b", b"c")
    group.compact(0, 4, bytes(25))
    group.mend()
    group.wait(0.5)
    assert group.nodes[2].snapshot is None
    found[0] = leader.snapshot
    group.wait(0.5)
    assert group.nodes[2].snapshot == leader.snapshot


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


def test_a_follower_waits_for_a_snapshot_that_has_data() -> None:
    group = led()
    group.isolate(2)
    group.propose(0, b"a", b"b")
    group[0].compact(3, Snapshot(3, group[0].term, (0, 1, 2), (), b""))
    group.mend()
    group.wait(0.2)
    group[0].compact(3, Snapshot(3, group[0].term, (0, 1, 2), (), b"data"))
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
        (0, (0, 0), ()),
        (0, (0, 1), (1,)),
    ):
        with pytest.raises(ValueError, match="named twice"):
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
    assert group[0].membership == Membership((0, 1, 2), ())
    with pytest.raises(LookupError):
        group[0].term_at(99)


def test_an_acknowledgement_from_before_a_restart_counts_for_nothing() -> None:
    group = led()
    group.isolate(0)
    group.propose(0, b"a")
    term = group[0].term
    old = max(message.stream for _, _, message in group.dropped if isinstance(message, Append))
    group[0].peer_restarted(1)
    group[0].step(1, AppendReply(term, old, 2, counts=True), group.now)
    assert group[0].commit_index == 1
    group[0].step(1, AppendReply(term, old + 1, 2, counts=True), group.now)
    assert group[0].commit_index == 2


def test_a_doubtful_node_asks_now_and_then_and_not_with_every_heartbeat() -> None:
    group = led()
    group.crash(2)
    group.lose(2, 1)
    group.restart(2)
    asked = 0
    for round_number in range(10):
        group[2].step(0, Heartbeat(group[0].term, 1, group[0].term, round_number), group.now)
        sent = group[2].take_effects().send
        asked += sum(isinstance(message, ReadRequest) for _, message in sent)
    assert asked == 1
