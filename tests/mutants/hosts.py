"""Planted bugs in how placement sees members that share a host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.placement.domains import Domains
from samelog.placement.members import MemberStates
from samelog.placement.table import PlacementTable


@contextmanager
def share_a_host() -> Iterator[None]:
    """Members are chosen for copies as if each were alone on its host."""
    original = Domains.__init__

    def init(self: Domains, table: PlacementTable) -> None:
        original(self, table)
        self.host = lambda member: f"member {member}"

    with patch.object(Domains, "__init__", init):
        yield


@contextmanager
def count_members_for_hosts() -> Iterator[None]:
    """A goal counts members, though several share a host."""
    with patch.object(MemberStates, "count_hosts", lambda self, members: len(set(members))):
        yield


@contextmanager
def name_hosts_after_machines() -> Iterator[None]:
    """Members that say no host are all on one."""
    with patch.object(PlacementTable, "host_of", lambda self, member: self.members[member].host):
        yield


_IN = "tests/placement/test_hosts.py::"

HOSTS = (
    ("placement.24", share_a_host, _IN + "test_a_host_has_one_copy_of_a_group_at_most"),
    (
        "placement.24",
        count_members_for_hosts,
        _IN + "test_goals_count_hosts_and_the_next_host_gets_what_is_missing",
    ),
    (
        "placement.24",
        name_hosts_after_machines,
        "tests/placement/test_planner.py::test_a_group_is_filled_up_to_the_hosts_that_come",
    ),
)
"""Rule, bug, and the test that finds it."""
