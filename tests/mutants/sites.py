"""Planted bugs about sites: who is where, who copies from whom, and when a reader moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

from samelog.placement.sites import Sites
from samelog.sequencer import group_replica
from samelog.sequencer.sites import lags
from samelog.sequencer.sites.lags import MemberLag, SiteLags
from samelog.sequencer.state.setting_state import CHANGES
from samelog.sequencer.state.sites.commands import SetSiteCommand
from samelog.wire.pull import nearness
from samelog.wire.pull.nearness import Nearness


@contextmanager
def make_sites_of_mistyped_names() -> Iterator[None]:
    """A member is in whatever site it names."""

    def set_site(whole: Any, command: Any) -> None:
        whole.sites.members[command.member] = command.site

    with patch.dict(cast(Any, CHANGES), {SetSiteCommand: set_site}):
        yield


@contextmanager
def voters_anywhere() -> Iterator[None]:
    """A member of a site that only reads becomes a voter, and acknowledgements wait for it."""
    with patch.object(Sites, "may_vote", lambda self, member: True):
        yield


@contextmanager
def gateway_asks_its_copiers() -> Iterator[None]:
    """Whoever is up is asked for merged bytes: those who copy from the gateway, too."""

    def sources(own: int, peers: Sequence[int], sites: Sites, voters: Any) -> list[int]:
        return list(peers)

    with (
        patch.object(group_replica, "copy_sources", sources),
        patch("tests.sequencer.test_sites.copy_sources", sources),
    ):
        yield


@contextmanager
def take_sessions_from_afar() -> Iterator[None]:
    """Members of a site that only reads take session bytes, each for itself."""
    with patch.object(Sites, "only_reads", lambda self, member: False):
        yield


@contextmanager
def silent_is_current() -> Iterator[None]:
    """A member that says nothing lacks nothing."""
    with (
        patch.object(SiteLags, "of_member", lambda self, number, now: MemberLag(0, 0, 0.0)),
        patch.object(lags, "UNKNOWN", -2),
    ):
        yield


@contextmanager
def stay_with_the_late() -> Iterator[None]:
    """A reader stays with the node near it, however far that is behind."""
    with patch.object(Nearness, "has_kept_up", lambda self, copy: True):
        yield


@contextmanager
def return_at_once() -> Iterator[None]:
    """A reader returns to a node near it as soon as that has everything once."""
    with patch.object(nearness, "RETURN_S", 0.0):
        yield


_SITES = "tests/sequencer/test_sites.py::"
_NEAR = "tests/replicator/test_scenarios.py::test_scenario[pull_receiver_near]"
SITES = (
    (
        240,
        make_sites_of_mistyped_names,
        _SITES + "test_a_member_is_in_a_site_only_if_the_cluster_has_it",
    ),
    (
        241,
        voters_anywhere,
        _SITES + "test_where_some_sites_only_read_only_members_of_others_may_vote",
    ),
    (242, gateway_asks_its_copiers, _SITES + "test_each_byte_crosses_the_line_once"),
    (
        242,
        take_sessions_from_afar,
        _SITES + "test_where_some_sites_only_read_only_members_of_others_may_vote",
    ),
    (243, silent_is_current, _SITES + "test_lag_that_is_not_known_is_not_nothing"),
    (244, stay_with_the_late, _NEAR),
    (244, return_at_once, _NEAR),
)
"""Rule, bug, and the test that finds it."""
