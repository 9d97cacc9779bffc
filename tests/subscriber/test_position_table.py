"""A table of positions in PostgreSQL: members on many connections at once. Skipped where it, or
psycopg, is not installed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from samelog.subscriber.errors import PositionLost
from samelog.subscriber.groups.membership import Claim
from samelog.subscriber.groups.position_table import PositionTable
from samelog.subscriber.groups.sharing import InHand
from tests.patience import PATIENCE_S
from tests.postgres import running

psycopg: Any = pytest.importorskip("psycopg", reason="psycopg is not here: pip install psycopg")
MEMBERS = 8


@pytest.fixture(scope="module")
def connect() -> Iterator[Callable[[], Any]]:
    with running() as where:
        yield lambda: psycopg.connect(where)


def table(connection: Any, name: str) -> PositionTable:
    return PositionTable(connection, "g", table=name, parameter="%s")


def claim(epoch: int) -> Claim:
    return Claim(1, "t", "log", 0, epoch, -1)


def in_hand(epoch: int, first: int, behind: int) -> InHand:
    return InHand("t", "log", 0, epoch, first, behind)


def test_a_position_moves_with_the_results_and_never_by_an_earlier_member(
    connect: Callable[[], Any],
) -> None:
    with connect() as connection:
        positions = table(connection, "moved")
        assert positions.claim(claim(1)) is None
        connection.execute("CREATE TABLE results (value INT)")
        with connection.transaction():
            connection.execute("INSERT INTO results VALUES (7)")
            positions.advance([in_hand(1, 0, 5)])
        assert positions.claim(claim(2)) == 5

        def store_late() -> None:
            with connection.transaction():
                connection.execute("INSERT INTO results VALUES (8)")
                positions.advance([in_hand(1, 5, 9)])

        with pytest.raises(PositionLost):
            store_late()
        assert connection.execute("SELECT value FROM results").fetchall() == [(7,)]
        with pytest.raises(PositionLost):
            positions.claim(claim(1))


def test_members_that_begin_at_once_make_one_table_and_one_row(connect: Callable[[], Any]) -> None:
    barrier = threading.Barrier(MEMBERS)

    def begin(epoch: int) -> int | None:
        with connect() as connection:
            barrier.wait(PATIENCE_S)
            try:
                table(connection, "begun").claim(claim(epoch))
            except PositionLost:
                return None
            return epoch

    with ThreadPoolExecutor(MEMBERS) as threads:
        claimed = [each for each in threads.map(begin, range(1, MEMBERS + 1)) if each]
    assert MEMBERS in claimed, "the newest member always has it in the end"
    with connect() as connection:
        rows = connection.execute("SELECT epoch, next_offset FROM begun").fetchall()
    assert rows == [(MEMBERS, None)]


def test_a_row_that_an_earlier_member_makes_meanwhile_is_claimed(
    connect: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect() as first, connect() as second:
        earlier, later = table(first, "meanwhile"), table(second, "meanwhile")
        read = later._read

        def read_after_the_other(column: str, key: Any) -> Any:
            if column == "epoch":
                earlier.claim(claim(1))
            return read(column, key)

        monkeypatch.setattr(later, "_read", read_after_the_other)
        assert later.claim(claim(2)) is None
        with pytest.raises(PositionLost):
            earlier.claim(claim(1))


def test_a_claim_waits_for_a_transaction_that_moves_the_position(
    connect: Callable[[], Any],
) -> None:
    with connect() as first, connect() as second, ThreadPoolExecutor(1) as threads:
        earlier, later = table(first, "waited"), table(second, "waited")
        earlier.claim(claim(1))
        with first.transaction():
            earlier.advance([in_hand(1, 0, 5)])
            claiming: Future[int | None] = threads.submit(later.claim, claim(2))
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            with connect() as looking:
                looking.autocommit = True
                while looking.execute(waits).fetchone() == (0,):
                    assert not claiming.done(), "it does not claim what is being moved"
        assert claiming.result(PATIENCE_S) == 5
        with pytest.raises(PositionLost), first.transaction():
            earlier.advance([in_hand(1, 5, 9)])
