"""A member of a group: what it says, where it begins, what it lets go of, and its own positions."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import UNSET

from samelog.admin.group_answers import AssignedPartition, GroupBeaten
from samelog.admin.group_requests import BeatGroup
from samelog.format.transactions import Isolation
from samelog.store.disk.files import OsFileSystem
from samelog.subscriber.engine import Choice, Engine
from samelog.subscriber.errors import LogReset, PositionLost
from samelog.subscriber.groups.membership import Claim, GroupMembership, MemberOptions
from samelog.subscriber.groups.position_table import PositionTable
from samelog.subscriber.groups.sharing import InHand, Sharing
from samelog.subscriber.pacing import Pacing
from samelog.subscriber.start import AutoOffsetReset, StartFinder, parse_start
from samelog.subscriber.subscriber import Subscriber
from samelog.subscriber.topics.chosen import ChosenTopics
from tests.subscriber.merged import Growing
from tests.subscriber.transactions import Transactions

SESSION_S = 45.0


def membership() -> GroupMembership:
    return GroupMembership(MemberOptions("g", ("t",), "here"))


def answer(epoch: int, *numbers: int, committed: int = -1, **more: Any) -> GroupBeaten:
    given = tuple(AssignedPartition(n, "t", "log", n, committed) for n in numbers)
    known = {"lost": "", "assigned": given, "not_committed": (), **more}
    return GroupBeaten(epoch, heartbeat_ms=500, session_ms=int(SESSION_S * 1000), **known)


def exchange(member: GroupMembership, said: GroupBeaten, now: float = 0.0) -> BeatGroup:
    asked = member.request(now)
    member.answered(asked, said, now)
    return asked


def claims_of(member: GroupMembership) -> list[Claim]:
    return list(member.look()[0].values())


# --- what is said ---------------------------------------------------------------------------------


def test_a_partition_is_given_up_when_the_application_says_so() -> None:
    member = membership()
    exchange(member, answer(1, 0, 1))
    one, other = claims_of(member)
    exchange(member, answer(1, 0))
    assert set(member.look()[1].values()) == {other}
    assert member.request(0.0).owned is UNSET  # as before: it has both
    member.commit(other, 7)
    member.give_up(other)
    said = member.request(0.0)
    assert said.owned == (one.number,)
    assert [(each.partition, each.offset) for each in said.commits] == [(other.number, 7)]
    member.answered(said, answer(2, 0, assigned=None), 0.0)
    assert member.has_said_all
    assert not member.commit(other, 8)


def test_what_was_given_up_while_it_spoke_is_said_next() -> None:
    member = membership()
    exchange(member, answer(1, 0, 1))
    exchange(member, answer(1, 0))
    asked = member.request(0.0)
    member.give_up(next(iter(member.look()[1].values())))
    member.answered(asked, answer(1, assigned=None), 0.0)
    assert not member.has_said_all
    assert member.request(0.0).owned == (0,)


def test_a_position_that_moved_while_it_was_said_is_said_again() -> None:
    member = membership()
    exchange(member, answer(1, 0))
    [claim] = claims_of(member)
    member.commit(claim, 5)
    asked = member.request(0.0)
    member.commit(claim, 6)
    member.answered(asked, answer(1, assigned=None), 0.0)
    assert [each.offset for each in member.request(0.0).commits] == [6]


def test_who_was_not_heard_of_has_nothing() -> None:
    member = membership()
    exchange(member, answer(1, 0), now=10.0)
    [claim] = claims_of(member)
    member.expire(10.0 + SESSION_S - 0.1)
    assert claims_of(member) == [claim]
    member.expire(10.0 + SESSION_S)
    assert claims_of(member) == []
    assert not member.commit(claim, 9)
    assert member.request(100.0).epoch == 0


def test_who_is_lost_joins_as_another_member_and_says_good_bye() -> None:
    member = membership()
    first = exchange(member, answer(3, 0))
    member.lose()
    bye = member.request(0.0)
    assert (bye.member, bye.epoch, bye.leaves) == (first.member, 3, True)
    member.answered(bye, answer(3), 0.0)
    again = member.request(0.0)
    assert (again.epoch, again.leaves) == (0, False)
    assert again.member != first.member


def test_what_the_coordinator_did_not_commit_is_not_the_member_s() -> None:
    member = membership()
    exchange(member, answer(1, 0, 1))
    exchange(member, answer(1, assigned=None, not_committed=(1,)))
    assert [claim.number for claim in claims_of(member)] == [0]


# --- where it begins, and what it lets go of ------------------------------------------------------


class Cluster:
    """The keeper of a member, and files that it may read."""

    is_local = True

    def __init__(self, path: Path, **options: Any) -> None:
        self.files = Growing(path, topic_id="log")
        self.member = membership()
        self.sharing = Sharing(self.member, options.get("own"), lambda: 0.0)
        start = parse_start(options.get("start", "earliest"), is_named=True)
        reset = AutoOffsetReset(options.get("reset", "error"))
        self.engine = Engine(
            OsFileSystem(),
            os.fspath(path),
            Choice(ChosenTopics(("t",)), None, True, Isolation.READ_UNCOMMITTED, self.sharing),
            finder=StartFinder(start, reset, self.sharing, is_shared=True),
            store=self.sharing,
            is_kept_here=True,
        )

    def heed(self) -> bool:
        done = self.sharing.heed(self.engine, commits=True)
        self.engine.rescan_if_due()
        return done


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    made: list[Cluster] = []

    def make(**options: Any) -> Cluster:
        made.append(Cluster(tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.engine.close()


def test_what_the_group_has_committed_counts(cluster: Any) -> None:
    here = cluster(start="latest")
    here.files.append(*(b"%d" % number for number in range(9)))
    exchange(here.member, answer(1, 0, committed=4))
    here.heed()
    assert here.engine.cursors["t", 0].position == 4


def test_where_it_begins_is_committed(cluster: Any) -> None:
    here = cluster(start="latest")
    here.files.append(*(b"%d" % number for number in range(9)))
    exchange(here.member, answer(1, 0))
    here.heed()
    here.engine.commit(durable=False)
    assert [(each.partition, each.offset) for each in here.member.request(0.0).commits] == [(0, 9)]


def test_what_is_given_up_is_read_no_more_and_waits_for_the_application(cluster: Any) -> None:
    here = cluster()
    here.files.append(b"a", b"b")
    exchange(here.member, answer(1, 0))
    here.heed()
    cursor = here.engine.next_filled(1 << 20)
    assert cursor is not None
    assert [record.value for record in cursor.next_records(1)] == [b"a"]
    exchange(here.member, answer(1))
    assert not here.heed()
    assert here.engine.next_filled(1 << 20) is None
    assert here.member.look()[1]
    here.engine.settle()
    assert here.heed()
    said = here.member.request(0.0)
    assert said.owned == ()
    assert [each.offset for each in said.commits] == [1]
    assert not here.engine.cursors


def test_offsets_without_a_record_are_waited_for_by_nobody(cluster: Any) -> None:
    here = cluster()
    transactions = Transactions(here.files)
    transactions.send(1, 2)
    exchange(here.member, answer(1, 0))
    here.heed()
    cursor = here.engine.next_filled(1 << 20)
    assert len(cursor.next_records(2)) == 2
    here.engine.settle()
    transactions.end(1, is_commit=True)
    assert here.engine.next_filled(1 << 20) is cursor
    if cursor.next_records(2) == []:  # what was left of the chunk before; then the marker
        assert here.engine.next_filled(1 << 20) is cursor
    assert cursor.next_records(2) == []
    assert here.engine.undone() == []
    exchange(here.member, answer(1))
    assert here.heed()
    said = here.member.request(0.0)
    assert said.owned == ()
    assert [each.offset for each in said.commits] == [3]


def test_markers_behind_what_was_iterated_are_waited_for_by_nobody(cluster: Any) -> None:
    here = cluster()
    transactions = Transactions(here.files)
    transactions.send(1, 2)
    transactions.end(1, is_commit=True)
    exchange(here.member, answer(1, 0))
    here.heed()
    cursor = here.engine.next_filled(1 << 20)
    reader = cast(Any, SimpleNamespace(_ticks=False, _attention=False))
    handed = Subscriber._hand_out(reader, cursor)
    assert len([next(handed), next(handed)]) == 2
    assert here.engine.undone() == [(("t", 0), 1, 2)]
    assert list(handed) == []
    assert (cursor.done, cursor.position) == (3, 3)
    exchange(here.member, answer(1))
    assert here.heed()


def test_rows_are_in_hand_until_more_are_asked_for(cluster: Any) -> None:
    here = cluster()
    transactions = Transactions(here.files)
    transactions.send(1, 2)
    transactions.end(1, is_commit=True)
    exchange(here.member, answer(1, 0))
    here.heed()
    cursor = here.engine.next_filled(1 << 20)
    assert cursor.take_table(9).num_rows == 2
    assert here.engine.undone() == [(("t", 0), 0, 3)]
    exchange(here.member, answer(1))
    assert not here.heed()
    here.engine.settle()
    assert here.heed()


def test_a_position_of_another_log_counts_as_none_and_is_said(cluster: Any) -> None:
    here = cluster()
    exchange(here.member, answer(1, 0, committed=4))
    here.heed()
    other = (AssignedPartition(7, "t", "other", 0, -1),)
    exchange(here.member, answer(2, assigned=other))
    with pytest.raises(LogReset):
        here.heed()
    assert here.sharing.get("t", "other", 0) is None


def test_what_was_taken_is_handed_out_first() -> None:
    heeded: list[bool] = []

    def heed(engine: Any, *, commits: bool) -> bool:
        heeded.append(True)
        raise AssertionError("records were taken, and are not handed out yet")

    sharing = SimpleNamespace(is_due=True, heed=heed)
    pacing = cast(Any, Pacing.__new__(Pacing))
    engine = SimpleNamespace(
        sharing=sharing, next_filled=lambda limit: None, choice=SimpleNamespace(follow=True)
    )
    engine.waiter = SimpleNamespace(wait=lambda wait_s: pytest.fail("there is something to heed"))
    pacing._engine, pacing._using, pacing._sharing = engine, threading.Lock(), sharing
    pacing._next_filled, pacing._replay = pacing._filled, None
    pacing._is_closed = pacing._is_paused = False
    pacing._wait_s = lambda: 1.0
    assert pacing._ready(None, 1, has_taken=True) is None
    assert not heeded


# --- positions of one's own -----------------------------------------------------------------------


def claim(epoch: int, committed: int = -1, topic_id: str = "log") -> Claim:
    return Claim(1, "t", topic_id, 0, epoch, committed)


def in_hand(epoch: int, first: int, behind: int, topic_id: str = "log") -> InHand:
    return InHand("t", topic_id, 0, epoch, first, behind)


@pytest.fixture
def table() -> PositionTable:
    return PositionTable(sqlite3.connect(":memory:"), "g")


def test_a_position_moves_with_the_results(table: PositionTable) -> None:
    assert table.claim(claim(1)) is None
    table.advance([in_hand(1, 0, 5)])
    table.advance([in_hand(1, 5, 9)])
    assert table.claim(claim(2)) == 9


def test_a_first_claim_begins_where_the_cluster_says(table: PositionTable) -> None:
    assert table.claim(claim(1, committed=30)) == 30
    with pytest.raises(PositionLost):
        table.advance([in_hand(1, 0, 5)])


def test_a_position_passes_over_what_was_not_handed_out(table: PositionTable) -> None:
    table.claim(claim(1))
    table.advance([in_hand(1, 0, 5)])
    table.advance([in_hand(1, 7, 9)])  # markers, an archived start, or what was skipped
    assert table.offset("t", "log", 0) == 9
    with pytest.raises(PositionLost):
        table.advance([in_hand(1, 7, 9)])


def test_a_late_transaction_of_an_earlier_member_is_undone(table: PositionTable) -> None:
    table.claim(claim(1))
    assert table.claim(claim(4)) is None
    with pytest.raises(PositionLost):
        table.advance([in_hand(1, 0, 5)])
    table.advance([in_hand(4, 0, 3)])
    with pytest.raises(PositionLost):
        table.claim(claim(3))


def test_a_position_belongs_to_a_log(table: PositionTable) -> None:
    table.claim(claim(1))
    table.advance([in_hand(1, 0, 5)])
    assert table.claim(claim(2, topic_id="other")) is None
    assert table.offset("t", "log", 0) == 5


def test_a_table_has_a_plain_name() -> None:
    with pytest.raises(ValueError, match="no name of a table"):
        PositionTable(sqlite3.connect(":memory:"), "g", table="a; DROP TABLE b")
