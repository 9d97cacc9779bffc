"""Planted bugs in default groups, and in how partitions are evened out between groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.placement import planner, splits, topics
from samelog.placement.members import MemberStates, PlacementLimits
from samelog.placement.planner import PlacementPlanner, StuckSplits
from samelog.placement.tasks import TaskKind


@contextmanager
def make_groups_with_topics_only() -> Iterator[None]:
    """No default group is made before a topic needs it."""
    with patch.object(planner, "new_default_groups", lambda *_: ()):
        yield


@contextmanager
def bound_groups_by_partitions() -> Iterator[None]:
    """The bound by partitions counts for the first groups, too: there is one for few partitions."""

    def wanted(partitions: int, members: int, limits: PlacementLimits) -> int:
        return max(1, -(-partitions // limits.partitions_per_group))

    with patch.object(topics, "_defaults_wanted", wanted):
        yield


@contextmanager
def drop_default_groups() -> Iterator[None]:
    """A default group ends with its last partition, and the next topic waits for another one."""
    with patch.object(planner, "default_groups", lambda *_: frozenset()):
        yield


@contextmanager
def begin_groups_one_by_one() -> Iterator[None]:
    """The first default groups do not wait for members that are about to start."""
    with patch.object(MemberStates, "expected", MemberStates.in_service):
        yield


@contextmanager
def leave_partitions_where_they_are() -> Iterator[None]:
    """Groups that differ by two partitions stay as they are."""
    with patch.object(planner, "splits", lambda *_: []):
        yield


@contextmanager
def split_by_one() -> Iterator[None]:
    """Groups that differ by one partition are evened out: it goes to and fro."""
    with patch.object(splits, "ONE_MORE", 1):
        yield


@contextmanager
def wait_for_the_seal_for_ever() -> Iterator[None]:
    """A split that cannot be sealed keeps both groups."""
    with patch.object(StuckSplits, "waits", lambda *_: False):
        yield


@contextmanager
def split_before_replacing() -> Iterator[None]:
    """A split goes on though a member of its groups is lost or drained."""
    original = PlacementPlanner._why_given_up

    def why(self: PlacementPlanner, states: Any, task: Any, moved: Any, now_ms: int) -> str:
        given_up = original(self, states, task, moved, now_ms)
        is_split = task.kind is TaskKind.SPLIT
        return "" if is_split and "give up a member" in given_up else given_up

    with patch.object(PlacementPlanner, "_why_given_up", why):
        yield


_IN = "tests/placement/test_splits.py::test_"
_FIRST = _IN + "default_groups_are_made_before_any_topic_and_each_member_leads_one"
_SIXTH = _IN + "five_hosts_share_default_topics_and_a_sixth_gets_its_share"
_STUCK = _IN + "a_split_that_cannot_be_sealed_is_given_up_and_another_partition_is_taken"

DEFAULT_GROUPS = (
    ("placement.25", make_groups_with_topics_only, _FIRST),
    ("placement.25", bound_groups_by_partitions, _FIRST),
    (
        "placement.25",
        drop_default_groups,
        _IN + "default_groups_stay_when_their_topics_go_and_others_do_not",
    ),
    (
        "placement.25",
        begin_groups_one_by_one,
        _IN + "the_first_groups_wait_for_members_that_are_about_to_start",
    ),
    ("placement.26", leave_partitions_where_they_are, _SIXTH),
    (
        "placement.26",
        split_by_one,
        _IN + "groups_that_differ_by_one_partition_stay_as_they_are",
    ),
    ("placement.26", wait_for_the_seal_for_ever, _STUCK),
    ("placement.26", split_before_replacing, _IN + "a_split_gives_way_to_what_is_lost"),
)
"""Rule, bug, and the test that finds it."""
