"""Planted bugs in how files go: of deleted topics, and of runs that are over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.replicator.push.session_tail import RunTail
from samelog.sequencer.merge import session_store
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.raft.replica import Replica
from samelog.store.disk.files import FileSystem
from samelog.store.merged import topic_dirs
from samelog.store.merged.topic_dirs import TopicDirs
from samelog.store.session.log import InputLog


@contextmanager
def remove_all_at_once() -> Iterator[None]:
    """All files of a deleted topic are removed in one turn."""

    def remove_all(self: TopicDirs) -> bool:
        found = False
        while original(self):
            found = True
        return found

    original = TopicDirs.remove_next
    with patch.object(TopicDirs, "remove_next", remove_all):
        yield


@contextmanager
def snapshots_before_it_is_gone() -> Iterator[None]:
    """A snapshot does not wait until the files of a deleted topic are gone."""

    async def at_once(self: Replica) -> None:
        pass

    with patch.object(Replica, "wait_tidied", at_once):
        yield


@contextmanager
def hide_what_follows() -> Iterator[None]:
    """A directory is not there while an older one of its path waits to be removed."""
    original = TopicDirs.is_there

    def is_there(self: TopicDirs, path: str, topic_id: str, index: int) -> bool:
        return path not in self._leaving and original(self, path, topic_id, index)

    with patch.object(TopicDirs, "is_there", is_there):
        yield


@contextmanager
def remove_in_place() -> Iterator[None]:
    """The files of a directory are removed at its path."""
    with patch.object(topic_dirs, "remove_whole", lambda fs, path: fs.remove_tree(path)):
        yield


@contextmanager
def call_removed_by_suffix() -> Iterator[None]:
    """Sessions whose names end as those of removed directories once did are cleared away."""

    def clear(fs: FileSystem, folder: str) -> None:
        for name in fs.list_directory(folder):
            if name.endswith(".removed"):
                fs.remove_tree(os.path.join(folder, name))

    with patch.object(session_store, "clear_removed", clear):
        yield


@contextmanager
def skip_sessions_being_made() -> Iterator[None]:
    """Inputs of a session that is being opened when gaps are looked for are never checked."""
    original = SessionStore._open_log

    def open_log(self: SessionStore, *made: Any, **how: Any) -> InputLog:
        self.used.unchecked.clear()
        return original(self, *made, **how)

    with patch.object(SessionStore, "_open_log", open_log):
        yield


@contextmanager
def wait_for_runs_without_files() -> Iterator[None]:
    """A closed run stays until a position is reported of inputs whose files are gone."""
    with patch.object(RunTail, "has_bytes", True):
        yield


_CRASHES = "tests/store/test_merged_log_crash.py::"
_RELEASE = "tests/replicator/test_push_release.py::"
_MANY = "tests/sequencer/test_many_partitions.py::"
_SESSIONS = "tests/sequencer/test_session_store.py::"

REMOVING = (
    ("turns.1", remove_all_at_once, _MANY + "test_a_deleted_topic_goes_directory_by_directory"),
    (
        "turns.1",
        snapshots_before_it_is_gone,
        _MANY + "test_a_snapshot_waits_until_a_deleted_topic_is_gone",
    ),
    (
        "logs.14",
        call_removed_by_suffix,
        _SESSIONS + "test_no_other_session_goes_with_a_session_that_is_forgotten",
    ),
    (
        "sessions.49",
        skip_sessions_being_made,
        _SESSIONS
        + "test_a_gap_is_found_though_its_session_was_being_made_when_gaps_were_looked_for",
    ),
    (
        "logs.14",
        hide_what_follows,
        _MANY + "test_a_repeated_removal_of_an_older_topic_hides_no_directory",
    ),
    (
        "logs.14",
        remove_in_place,
        _CRASHES + "test_a_directory_is_whole_or_gone_after_a_crash_at_any_step_of_its_removal",
    ),
    (
        "sessions.41",
        wait_for_runs_without_files,
        _RELEASE + "test_a_run_goes_though_no_file_is_left_of_what_it_carried",
    ),
)
"""Rule, bug, and the test that finds it."""
