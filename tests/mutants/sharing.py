"""Planted bugs in the log that the replicas of all groups of a member share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from samelog.consensus import Entry
from samelog.consensus.wal import GroupLog, LogReplay, Tagged, WalEncoder
from samelog.consensus.wal.codec import _Walk
from samelog.sequencer.raft.member_log import BEGUN, FILES_KEPT, MemberLog, SyncMark


@contextmanager
def cut_across_groups() -> Iterator[None]:
    """An entry that replaces others replaces those of all groups."""
    original = LogReplay.add

    def add(self: LogReplay, piece: Iterable[Tagged], number: int) -> None:
        for tagged in piece:
            original(self, [tagged], number)
            for group in self.groups.values():
                if isinstance(tagged.record, Entry) and group.key != tagged.key:
                    group._drop(group._position(tagged.record.index), len(group.entries))

    with patch.object(LogReplay, "add", add):
        yield


@contextmanager
def remove_what_idle_groups_need() -> Iterator[None]:
    """An old file goes when newer ones are full, whoever has records in it."""
    original = MemberLog.unsynced

    def unsynced(self: MemberLog) -> tuple[Any, SyncMark]:
        file, mark = original(self)
        oldest = max(mark.oldest, self._sequence - FILES_KEPT)
        return file, msgspec.structs.replace(mark, oldest=oldest)

    with patch.object(MemberLog, "unsynced", unsynced):
        yield


@contextmanager
def remove_before_it_is_moved_durably() -> Iterator[None]:
    """A file goes as soon as what it held was written again, synced or not."""
    original = MemberLog._move_some

    def move_some(self: MemberLog) -> None:
        original(self)
        oldest = self._oldest
        while oldest < self._sequence and not self._replay.live[oldest]:
            oldest += 1
        self._remove(oldest)

    with patch.object(MemberLog, "_move_some", move_some):
        yield


@contextmanager
def move_nothing() -> Iterator[None]:
    """Records of idle groups hold up the files for ever."""
    with patch.object(GroupLog, "needs", lambda self, file: False):
        yield


@contextmanager
def moved_records_replace() -> Iterator[None]:
    """A record that is written again counts like a new one: it replaces what follows it."""
    original = WalEncoder.encode

    def encode(self: WalEncoder, *args: Any, **options: Any) -> bytes:
        return original(self, *args, **{**options, "moved": False})

    with patch.object(WalEncoder, "encode", encode):
        yield


@contextmanager
def take_records_of_other_replicas() -> Iterator[None]:
    """A replica takes the records of the one that its member had of this group before."""
    original = _Walk._decode

    def decode(self: _Walk, kind: int, body: memoryview) -> Tagged:
        tagged = original(self, kind, body)
        return tagged._replace(key=(tagged.key[0], 0))

    group = MemberLog.group

    def any_replica(self: MemberLog, key: tuple[int, int]) -> GroupLog:
        return group(self, (key[0], 0))

    with patch.object(_Walk, "_decode", decode), patch.object(MemberLog, "group", any_replica):
        yield


@contextmanager
def one_mark_covers_all() -> Iterator[None]:
    """A sync that a group asked for covers what another group wrote meanwhile."""
    original = MemberLog.synced

    def synced(self: MemberLog, mark: SyncMark) -> None:
        position = self._file.size
        original(self, msgspec.structs.replace(mark, sequence=self._sequence, position=position))

    with patch.object(MemberLog, "synced", synced):
        yield


@contextmanager
def only_who_asked_has_failed() -> Iterator[None]:
    """A failed sync ends the group that asked for it; the others go on."""
    with patch.object(MemberLog, "fail", lambda self, fault: None):
        yield


@contextmanager
def trust_who_may_have_lost() -> Iterator[None]:
    """Whose records were hit is not asked: all groups begin with what can be read."""
    with patch.object(LogReplay, "damage", lambda self, key: None):
        yield


@contextmanager
def remove_beside_damage() -> Iterator[None]:
    """Files go though something in them is unreadable."""
    original = MemberLog.synced

    def synced(self: MemberLog, mark: SyncMark) -> None:
        original(self, mark)
        self._remove(mark.oldest)

    with patch.object(MemberLog, "synced", synced):
        yield


@contextmanager
def begin_where_a_log_is_lost() -> Iterator[None]:
    """A member whose log is gone starts a new one, and votes as if it had promised nothing."""
    original = MemberLog.open.__func__  # type: ignore[attr-defined]

    def open_log(kind: type[MemberLog], /, fs: Any, directory: str, **owner: Any) -> MemberLog:
        begun = os.path.join(directory, BEGUN)
        if fs.exists(begun):
            fs.unlink(begun)
        log: MemberLog = original(kind, fs, directory, **owner)
        return log

    with patch.object(MemberLog, "open", classmethod(open_log)):
        yield


_LOG = "tests/sequencer/test_member_log.py::"
_HISTORIES = _LOG + "test_every_replica_gets_back_what_it_wrote_whatever_happened"

SHARING = (
    ("raft.17", cut_across_groups, _LOG + "test_cutting_one_group_cuts_no_other"),
    (
        "raft.17",
        take_records_of_other_replicas,
        _LOG + "test_a_new_replica_of_a_group_has_nothing_of_the_one_before",
    ),
    ("raft.17", remove_what_idle_groups_need, _LOG + "test_idle_replicas_hold_up_no_files"),
    ("raft.17", move_nothing, _LOG + "test_idle_replicas_hold_up_no_files"),
    ("raft.17", moved_records_replace, _HISTORIES),
    ("raft.17", remove_before_it_is_moved_durably, _HISTORIES),
    ("raft.18", one_mark_covers_all, _LOG + "test_a_sync_covers_what_was_written_before_it_began"),
    (
        "raft.18",
        only_who_asked_has_failed,
        "tests/sequencer/test_group.py::test_a_failed_sync_of_one_group_fails_all",
    ),
    (
        "raft.19",
        trust_who_may_have_lost,
        _LOG + "test_damage_is_damage_of_the_group_whose_record_is_hit",
    ),
    ("raft.19", remove_beside_damage, _LOG + "test_no_file_goes_while_something_is_unreadable"),
    ("raft.20", begin_where_a_log_is_lost, _LOG + "test_a_log_that_is_gone_is_not_begun_anew"),
)
"""Rule, bug, and the test that finds it."""
