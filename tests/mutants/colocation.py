"""Planted bugs in topics that share the group of another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.placement import planner, reassigning
from samelog.sequencer.admin import placement
from samelog.sequencer.state.units import topics


@contextmanager
def forget_who_shares_a_group() -> Iterator[None]:
    """A topic begins in the group of another one, and neither is kept there."""
    with patch.object(topics, "keep_together", lambda *_: None):
        yield


@contextmanager
def place_beside_what_has_moved() -> Iterator[None]:
    """Nobody looks again whether the other topic is where it was when this one was planned."""
    with patch.object(topics, "_problem_with_other", lambda *_: None):
        yield


@contextmanager
def part_what_shares_a_group() -> Iterator[None]:
    """Partitions of topics that share a group are evened out like others."""
    with patch.object(planner, "are_kept", lambda *_: False):
        yield


@contextmanager
def put_more_partitions_elsewhere() -> Iterator[None]:
    """New partitions of a topic that shares a group go to the group that has fewest."""
    with patch.object(placement, "are_kept", lambda *_: False):
        yield


@contextmanager
def move_one_of_several_topics() -> Iterator[None]:
    """An operator can move single partitions of topics that share a group."""
    with patch.object(reassigning, "check_may_part", lambda *_: None):
        yield


_IN = "tests/placement/test_colocation.py::test_"
_MORE = _IN + "a_topic_and_its_later_partitions_go_where_the_other_one_is"

COLOCATION = (
    ("placement.27", forget_who_shares_a_group, _MORE),
    ("placement.27", put_more_partitions_elsewhere, _MORE),
    (
        "placement.27",
        place_beside_what_has_moved,
        _IN + "what_was_planned_from_an_older_table_is_rejected",
    ),
    (
        "placement.27",
        move_one_of_several_topics,
        _IN + "they_are_reassigned_with_their_group_only",
    ),
    (
        "placement.27",
        part_what_shares_a_group,
        "tests/placement/test_splits.py::test_topics_that_share_a_group_are_not_parted",
    ),
)
"""Rule, bug, and the test that finds it."""
