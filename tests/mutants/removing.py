"""Planted bugs in how the files of a deleted topic go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.sequencer.raft.replica import Replica
from samelog.store.merged.topic_dirs import TopicDirs


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


_MANY = "tests/sequencer/test_many_partitions.py::"

REMOVING = (
    (26, remove_all_at_once, _MANY + "test_a_deleted_topic_goes_directory_by_directory"),
    (
        26,
        snapshots_before_it_is_gone,
        _MANY + "test_a_snapshot_waits_until_a_deleted_topic_is_gone",
    ),
)
"""Rule, bug, and the test that finds it."""
