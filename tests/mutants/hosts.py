"""Planted bugs in how placement sees members that share a host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from samelog.archiver.shares import LogShares
from samelog.cli.commands import cluster
from samelog.config.tables.node import NodePlaces
from samelog.placement import operations, voters
from samelog.placement.changes import AnyChange
from samelog.placement.domains import Domains
from samelog.placement.members import MemberStates
from samelog.placement.table import PlacementTable
from samelog.sequencer.cluster.changes import Changes
from samelog.sequencer.state.tables.members import MembersTable


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


@contextmanager
def drain_members_one_by_one() -> Iterator[None]:
    """Each member of a host is drained as if the others stayed."""
    original = operations.drain

    def drain(table: PlacementTable, states: MemberStates, *names: str) -> list[AnyChange]:
        return [change for name in names for change in original(table, states, name)]

    with patch.object(operations, "drain", drain):
        yield


@contextmanager
def maintain_one_member_of_a_host() -> Iterator[None]:
    """Of a host only the first member goes into maintenance."""
    original = MembersTable.names_on
    with patch.object(MembersTable, "names_on", lambda self, host: original(self, host)[:1]):
        yield


@contextmanager
def restart_a_host_at_any_price() -> Iterator[None]:
    """The members of a host restart together, whichever group loses its majority by that."""
    with patch.object(cluster, "_together", lambda on_host, nodes, groups: [(on_host, "")]):
        yield


@contextmanager
def take_all_of_the_host() -> Iterator[None]:
    """Each member of a host takes as much as if it were alone there."""
    with patch.object(NodePlaces, "share", lambda self, size: size):
        yield


@contextmanager
def take_all_of_the_limit() -> Iterator[None]:
    """Each member of a host keeps as much of the logs as the host may."""
    original = LogShares.__init__
    with patch.object(LogShares, "__init__", lambda self, members=1: original(self)):
        yield


@contextmanager
def let_every_member_vote() -> Iterator[None]:
    """Members become voters without a look at their hosts."""
    with patch.object(voters, "HOSTS_LEAST", 99):
        yield


@contextmanager
def wait_for_what_stands_by() -> Iterator[None]:
    """No member is added while one of another host could vote, though it is not to."""
    with patch.object(Changes, "stands_by", lambda self, number: False):
        yield


_IN = "tests/placement/test_hosts.py::"
_REQUESTS = "tests/sequencer/test_host_requests.py::"
_RESTARTS = "tests/cli/test_restarts.py::"

_VOTERS = "tests/placement/test_voters.py::"
_CHANGES = "tests/sequencer/test_changes.py::"

HOSTS = (
    ("raft.53", let_every_member_vote, _VOTERS + "test_no_host_has_half_of_the_voters"),
    (
        "raft.53",
        wait_for_what_stands_by,
        _CHANGES + "test_a_second_member_of_a_host_stands_by_and_the_next_may_join",
    ),
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
    (
        "placement.29",
        drain_members_one_by_one,
        _IN + "test_no_member_of_a_host_is_drained_if_one_has_nowhere_to_go",
    ),
    (
        "placement.29",
        maintain_one_member_of_a_host,
        _REQUESTS + "test_requests_about_a_host_are_carried_out_for_all_its_members",
    ),
    (
        "operations.10",
        take_all_of_the_host,
        "tests/sequencer/test_shared_hosts.py::test_budgets_are_divided_and_thresholds_are_not",
    ),
    (
        "operations.10",
        take_all_of_the_limit,
        "tests/archiver/test_shares.py::test_members_of_a_host_keep_the_limit_together",
    ),
    (
        "operations.9",
        restart_a_host_at_any_price,
        _RESTARTS + "test_members_restart_alone_where_a_group_would_lose_its_majority",
    ),
)
"""Rule, bug, and the test that finds it."""
