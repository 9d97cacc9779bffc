"""Positions of a group in a table of the application's own database, beside its results.

The handler's transaction moves the positions of what it was given, and stores its results; either
both are there afterwards, or neither. So each record has its results once, whatever dies when.

Invariant (215): a position only rises, and never over a record that was moved over before, and only
by the member that was given the partition last: the row has that member's epoch, and a transaction
of an earlier member, however late it comes, changes no row and is to be rolled back.

A member may begin behind the row's position: what lies between holds no record, was archived, or
was skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from samelog.subscriber.errors import PositionLost
from samelog.subscriber.groups.membership import Claim
from samelog.subscriber.groups.sharing import InHand

ResultT = TypeVar("ResultT")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
KEY = "group_name = ? AND topic = ? AND partition_number = ? AND log_id = ?"


class DatabaseCursor(Protocol):
    """A cursor of PEP 249."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement changed."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> object:
        """Carry a statement out."""

    def fetchone(self) -> Any:
        """The next row of the answer; None: there is none."""

    def close(self) -> None:
        """End it."""


class Database(Protocol):
    """A connection of PEP 249, such as those of sqlite3 and psycopg."""

    def cursor(self) -> DatabaseCursor:
        """A new cursor."""

    def commit(self) -> None:
        """End a transaction."""

    def rollback(self) -> None:
        """Undo a transaction."""


class PositionTable:
    """Positions of one group. Implements sharing.OwnPositions."""

    def __init__(
        self,
        database: Database,
        group: str,
        *,
        table: str = "samelog_positions",
        parameter: str = "?",
    ) -> None:
        """`parameter`: how the database's statements say that a value comes here; `%s` for psycopg.
        The table is made if it is not there.
        """
        if _NAME.fullmatch(table) is None:
            raise ValueError(f"{table!r} is no name of a table")
        self._database = database
        self._group = group
        self._table = table
        self._parameter = parameter
        self._committed(self._make)

    def _committed(self, work: Callable[[], ResultT]) -> ResultT:
        """Do it in a transaction of its own. Of several members that make the same table or row at
        once, a database such as PostgreSQL refuses all but one; then it is there, and it is done
        again.
        """
        try:
            return self._once(work)
        except PositionLost:
            raise
        except Exception:  # noqa: BLE001 - databases' errors have no class in common
            return self._once(work)

    def _once(self, work: Callable[[], ResultT]) -> ResultT:
        try:
            found = work()
            self._database.commit()
        except BaseException:
            self._database.rollback()
            raise
        return found

    def _make(self) -> None:
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self._table} (group_name VARCHAR(249) NOT NULL, "
            "topic VARCHAR(249) NOT NULL, partition_number INTEGER NOT NULL, "
            "log_id VARCHAR(32) NOT NULL, epoch BIGINT NOT NULL, next_offset BIGINT, "
            "PRIMARY KEY (group_name, topic, partition_number, log_id))"
        )

    def claim(self, claim: Claim) -> int | None:
        """See sharing.OwnPositions. In a transaction of its own."""
        return self._committed(lambda: self._claim(claim))

    def _claim(self, claim: Claim) -> int | None:
        key = (self._group, claim.topic, claim.partition, claim.topic_id)
        taken = self._take(key, claim.epoch)
        if not taken and self._read("epoch", key) is not None:
            taken = self._take(key, claim.epoch)  # an earlier member may have made it meanwhile
            if not taken:
                raise PositionLost("another member has claimed it in a later epoch of the group")
        if not taken:
            first = None if claim.committed < 0 else claim.committed
            columns = "group_name, topic, partition_number, log_id, epoch, next_offset"
            self._run(
                f"INSERT INTO {self._table} ({columns}) VALUES (?, ?, ?, ?, ?, ?)",
                (*key, claim.epoch, first),
            )
        offset = self._read("next_offset", key)
        return None if offset is None else int(offset)

    def _take(self, key: Sequence[Any], epoch: int) -> bool:
        """Give a row to the member of this epoch; False: none, or a later member has it."""
        statement = f"UPDATE {self._table} SET epoch = ? WHERE {KEY} AND epoch <= ?"
        return self._run(statement, (epoch, *key, epoch)) > 0

    def advance(self, in_hand: Iterable[InHand]) -> None:
        """Move behind what was handed out (`Subscriber.in_hand`), in the transaction that is open.
        Raises PositionLost: then roll back.
        """
        for part in in_hand:
            key = (self._group, part.topic, part.partition, part.topic_id)
            moved = self._run(
                f"UPDATE {self._table} SET next_offset = ? WHERE {KEY} AND epoch = ? "
                "AND (next_offset <= ? OR next_offset IS NULL)",
                (part.next_offset, *key, part.epoch, part.first_offset),
            )
            if moved != 1:
                raise PositionLost(f"{part.topic}-{part.partition} is another member's")

    def offset(self, topic: str, topic_id: str, partition: int) -> int | None:
        """The position of a partition; None: there is none."""
        found = self._read("next_offset", (self._group, topic, partition, topic_id))
        return None if found is None else int(found)

    def _run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """How many rows it changed."""
        cursor = self._database.cursor()
        try:
            cursor.execute(statement.replace("?", self._parameter), values)
            return cursor.rowcount
        finally:
            cursor.close()

    def _read(self, column: str, key: Sequence[Any]) -> Any:
        """One value of a row; None: there is none, or the value is null."""
        statement = f"SELECT {column} FROM {self._table} WHERE {KEY}"
        cursor = self._database.cursor()
        try:
            cursor.execute(statement.replace("?", self._parameter), key)
            row = cursor.fetchone()
        finally:
            cursor.close()
        return None if row is None else row[0]
