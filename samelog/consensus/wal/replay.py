"""What a start makes of the files of the shared log: one scan, all replicas.

Where records are unreadable, or a file is missing, nobody can say whose they were. But each record
says how many its replica had before it: a replica of which a later record goes on in this count has
lost nothing. Any other one has, or may have, and is damaged: it must not begin with less than it
promised.

Invariant: no replica is called whole that may lack one of its records.
"""

from __future__ import annotations

from collections.abc import Iterable

from samelog.consensus.errors import CorruptRecord
from samelog.consensus.wal.codec import ReplicaKey, Tagged
from samelog.consensus.wal.group_log import GroupLog


class LogReplay:
    """Give it the records in the order in which they were written, file by file."""

    def __init__(self) -> None:
        self.groups: dict[ReplicaKey, GroupLog] = {}
        self.live: dict[int, int] = {}
        self.holes: list[str] = []
        """Where something is unreadable."""
        self._damaged: dict[ReplicaKey, str] = {}
        self._doubted: dict[ReplicaKey, str] = {}
        """Of whose records nobody knows yet whether one was in a hole."""

    def begin_file(self, number: int) -> None:
        """What comes now stands in this file."""
        self.live[number] = 0

    def add_hole(self, reason: str) -> None:
        """Here are records that cannot be read."""
        self.holes.append(reason)
        for key in self.groups:
            self._doubted.setdefault(key, reason)

    def add(self, piece: Iterable[Tagged], number: int) -> None:
        """Records that follow each other in a file."""
        for tagged in piece:
            group = self._group_of(tagged)
            try:
                take = group.move if tagged.is_moved else group.note
                take(tagged.record, number)
            except CorruptRecord as error:
                self._damaged.setdefault(tagged.key, str(error))

    def _group_of(self, tagged: Tagged) -> GroupLog:
        key, before = tagged.key, tagged.before
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = GroupLog(key, self.live)
            if self.holes and before != 0:
                self._damaged[key] = self.holes[-1]
        elif before != group.count:
            reason = self._doubted.get(key, "records of it are missing")
            self._damaged.setdefault(key, reason)
        else:
            self._doubted.pop(key, None)
        group.count = before
        return group

    def end(self) -> None:
        """All was read."""
        for key, group in self.groups.items():
            try:
                group.check()
            except CorruptRecord as error:
                self._damaged.setdefault(key, str(error))

    def damage(self, key: ReplicaKey) -> str | None:
        """Why this replica's log cannot be trusted; None if it can."""
        if key not in self.groups and self.holes:
            return self.holes[-1]
        return self._damaged.get(key) or self._doubted.get(key)
