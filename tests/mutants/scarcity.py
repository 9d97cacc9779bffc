"""Planted bugs in placement where hosts are lacking, members are dead, or topics were deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.placement import guards, needs
from samelog.placement.members import MemberStates
from samelog.placement.planner import PlacementPlanner
from samelog.placement.table import PlacementTable
from samelog.placement.values import PlacedGroup


@contextmanager
def wait_for_hosts_that_do_not_exist() -> Iterator[None]:
    """A group is to have as many copies as its goal says, however few hosts there are."""
    with patch.object(MemberStates, "copies_of", lambda self, group: group.goal):
        yield


@contextmanager
def hide_what_can_be_done() -> Iterator[None]:
    """The planner looks no further once a group has a need that cannot be met."""
    original = needs.needs_of

    def needs_of(look: Any, group: PlacedGroup) -> Any:
        blocked, need = original(look, group)
        return blocked, None if blocked else need

    with patch("samelog.placement.planner.needs_of", needs_of):
        yield


@contextmanager
def leave_no_majority() -> Iterator[None]:
    """A copy is removed though most voters that are left cannot be reached."""
    original = guards.refuse_removal

    def refuse(group: PlacedGroup, member: int, healthy: Any, copies: int) -> str:
        obstacle = original(group, member, healthy, copies)
        return "" if member in healthy and "majority" in obstacle else obstacle

    with patch("samelog.placement.needs.refuse_removal", refuse):
        yield


@contextmanager
def keep_empty_groups() -> Iterator[None]:
    """A group whose topics were deleted stays, and needs what it needed before."""
    with patch.object(PlacementTable, "is_abandoned", lambda self, group: False):
        yield


@contextmanager
def place_into_lost_groups() -> Iterator[None]:
    """A partition goes to the group that has fewest, whether it can take records or not."""
    with patch.object(PlacementTable, "has_majority", lambda self, group: True):
        yield


@contextmanager
def list_one_move_of_each_group() -> Iterator[None]:
    """Partitions that wait for others of their group are not listed."""
    with patch.object(PlacementPlanner, "_waiting_moves", lambda self, shown, running: ()):
        yield


_IN = "tests/placement/test_"
_SCARCE = _IN + "simulation.py::test_goals_beyond_hosts_and_dead_members_block_nothing"
_PLANNER = _IN + "planner.py::test_"
_BEYOND = _PLANNER + "a_goal_beyond_the_hosts_is_no_task_and_blocks_none"
_HIDDEN = _PLANNER + "a_blocked_need_hides_no_other"
_MAJORITY = _PLANNER + "a_copy_is_not_removed_where_the_rest_would_be_no_majority"
_LOST = _PLANNER + "no_partition_goes_to_a_group_without_a_majority"

SCARCITY = (
    ("placement.16", wait_for_hosts_that_do_not_exist, _BEYOND),
    ("placement.16", hide_what_can_be_done, _HIDDEN),
    ("placement.16", leave_no_majority, _MAJORITY),
    ("placement.17", keep_empty_groups, _SCARCE),
    ("placement.17", place_into_lost_groups, _LOST),
    ("placement.18", list_one_move_of_each_group, _SCARCE),
)
"""Rule, bug, and the test that finds it."""
