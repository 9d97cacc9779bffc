"""Planted bugs in the guard of topics in use, and in the check of the partitions of keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.sequencer.admin import topic_users
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.state.tables.groups import ConsumerGroupRecord


@contextmanager
def count_only_readers_that_committed() -> Iterator[None]:
    """A group without committed positions does not keep a topic."""

    def uses(group: ConsumerGroupRecord, topic: str) -> bool:
        return bool(group.offsets)

    with patch.object(topic_users, "_uses", uses):
        yield


@contextmanager
def look_at_this_nodes_readers_only() -> Iterator[None]:
    """Subscribers of other nodes do not keep a topic."""

    async def no_readers(node: ServedNode, topic: str) -> list[str]:
        return []

    with patch.object(topic_users, "_readers_elsewhere", no_readers):
        yield


@contextmanager
def forget_who_writes() -> Iterator[None]:
    """Publishers with open runs do not keep a topic."""
    with patch.object(topic_users, "_is_open", lambda state, entry: False):
        yield


@contextmanager
def compare_no_keys() -> Iterator[None]:
    """Keys in other partitions than their own are not noticed."""
    with patch.object(Intake, "_compare_keys", lambda self, entry, topic, index, data: None):
        yield


_KEYS = "tests/sequencer/test_key_placement.py::"
_USERS = "tests/sequencer/test_topic_users.py::"
IN_USE = (
    (
        "readers.23",
        count_only_readers_that_committed,
        _USERS + "test_members_count_whether_or_not_they_committed",
    ),
    (
        "readers.23",
        look_at_this_nodes_readers_only,
        _USERS + "test_a_reader_at_any_node_keeps_a_topic",
    ),
    ("keys.9", compare_no_keys, _KEYS + "test_a_leader_describes_who_differs"),
    ("readers.23", forget_who_writes, _USERS + "test_a_topic_with_an_open_run_stays"),
)
"""Rule, bug, and the test that finds it."""
