"""A member's policy counts for all its groups together; each of them plans for its share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from samelog.archiver.rounds import ArchiveRounds
from samelog.archiver.shares import GroupBytes, LogShares
from samelog.sequencer.levels import SUPPORTED
from samelog.sequencer.node import Node
from samelog.wire.peer_messages import LogsHeld
from tests.archiver.test_archive_rounds import policy_of
from tests.archiver.test_truncation import BATCH, write
from tests.sequencer.cluster import RunWith, Session, leader_of, until
from tests.sequencer.test_data_groups import make_groups

SIZES = some.integers(0, 1 << 50)


def shares_of(*sizes: int, members: int = 1) -> LogShares:
    shares = LogShares(members)
    for group, size in enumerate(sizes):
        shares.note(group, GroupBytes(size, size))
    return shares


@given(some.lists(SIZES, min_size=1, max_size=8), SIZES)
def test_groups_together_keep_the_limit(sizes: list[int], limit: int) -> None:
    shares = shares_of(*sizes)
    kept = [min(size, shares.limit_of(n, limit, ())) for n, size in enumerate(sizes)]
    if sum(sizes) <= limit:
        assert kept == sizes, "nothing goes that need not"
    else:
        assert limit - len(sizes) < sum(kept) <= limit


@given(some.lists(SIZES, min_size=1, max_size=8), SIZES)
def test_groups_together_free_what_is_too_much(sizes: list[int], pressure: int) -> None:
    shares = shares_of(*sizes)
    freed = [shares.pressure_of(n, pressure) for n in range(len(sizes))]
    if sum(sizes):
        assert pressure <= sum(freed) < pressure + len(sizes)
    else:
        assert freed == [pressure] * len(sizes), "there is nothing to free"


@given(SIZES, SIZES)
def test_a_group_that_is_alone_has_all_of_it(size: int, bound: int) -> None:
    shares = shares_of(size)
    assert min(size, shares.limit_of(0, bound, [0])) == min(size, bound)
    assert shares.pressure_of(0, bound) == bound


def test_the_fullest_member_that_has_the_group_counts() -> None:
    shares = shares_of(100, 300)
    assert shares.limit_of(0, 200, [0, 350]) == 50
    assert shares.limit_of(0, 200, [800]) == 25
    assert shares.limit_of(1, 200, [800]) == 75
    shares.forget(1)
    assert not shares.is_shared
    assert shares.limit_of(0, 200, ()) == 200


@given(some.lists(SIZES, min_size=1, max_size=8), SIZES, some.integers(2, 8))
def test_members_of_a_host_keep_the_limit_together(
    sizes: list[int], limit: int, members: int
) -> None:
    """Each has its share, also by the word of the others."""
    shares = shares_of(*sizes, members=members)
    kept = [min(size, shares.limit_of(n, limit, ())) for n, size in enumerate(sizes)]
    if members * sum(sizes) <= limit:
        assert kept == sizes, "nothing goes that need not"
    else:
        assert limit - members * len(sizes) < members * sum(kept) <= limit
    elsewhere = shares_of(*sizes)
    planned = [min(s, elsewhere.limit_of(n, limit, [shares.limited])) for n, s in enumerate(sizes)]
    assert planned == kept, "the leader is alone on its host, a follower is not"


def test_a_member_that_shares_its_host_says_how_much_it_has() -> None:
    assert not shares_of(5).is_shared
    assert shares_of(5, members=2).is_shared
    assert shares_of(5, 7, members=2).limited == 24


def test_what_is_to_be_truncated_is_counted_once_for_all_groups() -> None:
    shares = shares_of(100, 300)
    shares.note_pending(0, 5)
    shares.note_pending(1, 7)
    assert shares.pending_bytes == 12
    shares.note_pending(0, 0)
    shares.forget(1)
    assert shares.pending_bytes == 0


async def do_nothing(self: ArchiveRounds) -> None:
    """Of a round: what is planned stays planned."""


def test_group_0_plans_for_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    monkeypatch.setattr(ArchiveRounds, "round", do_nothing)

    async def body(nodes: list[Node]) -> None:
        await write(nodes, Session("a"), 8)
        size = len(BATCH)
        for node in nodes:
            policy_of(node, tmp_path / "policy.json", json.dumps({"time": 0, "limit": 8 * size}))
        leader = await leader_of(nodes)
        rounds = leader.care.archive.rounds

        async def planned(files: int) -> None:
            await until(
                lambda: sum(each.files for each in rounds.plan().proposals) == files,
                f"{files} files are planned",
            )

        await planned(0)
        leader.member.shares.note(7, GroupBytes(8 * size, 8 * size))
        await planned(4)
        other = next(node for node in nodes if node is not leader)
        for group, held in ((0, 8 * size), (8, 24 * size)):
            other.member.shares.note(group, GroupBytes(held, held))
        told = leader.peers.presence.log_bytes
        await until(
            lambda: told.get(other.peers.number, 0) >= 32 * size,
            "another member says how much it has",
        )
        await planned(6)

    run_with(tmp_path, 3, body)


def test_data_groups_have_the_policy_of_their_member(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0])
        await until(lambda: 1 in nodes[0].data_groups.replicas, "its replica")
        care = nodes[0].data_groups.replicas[1].group_replica.care
        policy_of(nodes[0], tmp_path / "policy.json", '{"time": 7}')
        assert care.archive.policy.policy is nodes[0].care.archive.policy.policy is not None

    run_with(tmp_path, 1, body)


def test_a_member_says_how_much_it_has_only_where_groups_share_the_limit(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        sent: list[object] = []
        nodes[0].peers.links.send_all = sent.append  # type: ignore[method-assign,assignment]
        nodes[0].member.shares.note(0, GroupBytes(5, 5))
        nodes[0].tick_slowly()
        assert not [each for each in sent if isinstance(each, LogsHeld)]
        await until(lambda: nodes[0].cluster.members.level >= SUPPORTED, "the feature level")
        nodes[0].member.shares.note(1, GroupBytes(7, 7))
        nodes[0].tick_slowly()
        assert [each for each in sent if isinstance(each, LogsHeld)] == [LogsHeld(12)]

    run_with(tmp_path, 1, body)
