"""Planted bugs about sites: who is where, who copies from whom, and when a reader moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

from msgspec.structs import replace

from samelog.consensus import replication
from samelog.placement import operations, steps
from samelog.placement.sites import Sites
from samelog.placement.table import PlacementTable
from samelog.placement.values import PlacedGroup
from samelog.sequencer import bulk_server, dispatch, recovery, serving
from samelog.sequencer.admin.siting import promoting
from samelog.sequencer.cluster import node_dir, promotion
from samelog.sequencer.cluster.own_life import OwnLife
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.data_groups.intake import RoutedIntake
from samelog.sequencer.sites import lags, leading, sources, staying
from samelog.sequencer.sites.agreeing import Agreement
from samelog.sequencer.sites.lags import MemberLag, SiteLags
from samelog.sequencer.state.machine import CHANGES
from samelog.sequencer.state.tables.sites import PromoteSiteCommand, SetSiteCommand
from samelog.sequencer.state.units import members as member_units
from samelog.sequencer.state.units import merges
from samelog.spark.logs.homes import Homes
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

    def to_all(own: int, peers: Sequence[int], sites: Sites, voters: Any) -> list[int]:
        return list(peers)

    with (
        patch.object(sources, "copy_sources", to_all),
        patch("tests.sequencer.test_sites.copy_sources", to_all),
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


@contextmanager
def spark_asks_anybody() -> Iterator[None]:
    """Spark's readers stay with whichever node they asked first, over the long line."""
    with patch.object(Homes, "_go_near", lambda self: None):
        yield


@contextmanager
def promote_under_the_same_id() -> Iterator[None]:
    """A promotion leaves the cluster's id as it is: nobody can tell who is of before."""
    with patch.object(member_units, "promoted_id", lambda text, promotion: text):
        yield


@contextmanager
def begin_again_after_a_promotion() -> Iterator[None]:
    """A node that was told of a promotion begins again as it was."""

    def check(fs: Any, path: str) -> None:
        """Nothing is against it."""

    with (
        patch.object(node_dir, "check_not_superseded", check),
        patch.object(promotion, "check_not_superseded", check),
        patch.object(recovery, "check_not_superseded", check),
    ):
        yield


@contextmanager
def acknowledge_after_a_promotion() -> Iterator[None]:
    """A node that is told of a promotion counts until its process has ended."""
    with patch.object(OwnLife, "is_over", lambda self: None):
        yield


@contextmanager
def start_without_asking() -> Iterator[None]:
    """A node that was away votes and acknowledges before it has asked the other sites."""

    async def ask(fs: Any, config: Any, tls: Any) -> None:
        """Nobody."""

    with patch.object(serving, "ask_far_sites", ask):
        yield


@contextmanager
def promote_beside_a_leader() -> Iterator[None]:
    """A site is promoted although it hears a leader, or reaches a voter."""
    with patch.object(promoting, "_check_silence", lambda now, request: None):
        yield


@contextmanager
def promote_without_the_newest() -> Iterator[None]:
    """Members of the site that are away are left out, whatever they have."""
    with patch.object(promoting, "_check_mates", lambda now, request: None):
        yield


@contextmanager
def take_any_gap_after_a_promotion() -> Iterator[None]:
    """Once a site was promoted, what a producer sends out of order is taken for ever."""
    with patch.object(Sites, "promoted_at", lambda self, partition: 1 << 62):
        yield


@contextmanager
def lead_back_at_once() -> Iterator[None]:
    """Leadership moves to a site as soon as a voter there is up, and again when it fails again."""
    with patch.object(leading, "WELL_S", 0.0):
        yield


@contextmanager
def even_out_leaders_over_all_sites() -> Iterator[None]:
    """Who leads data groups is evened out, wherever leaders should be."""
    with patch.object(Sites, "may_lead", lambda self, member: True):
        yield


@contextmanager
def stay_by_hearsay() -> Iterator[None]:
    """A member that has just followed says who stays, by a state that is of before."""

    def stays(state: Any, cluster_id: str, own: int, other: int, known_as: Any) -> bool:
        return other in state.members.by_number

    with patch.object(staying, "stays", stays), patch.object(dispatch, "stays", stays):
        yield


@contextmanager
def replicas_vote_anywhere() -> Iterator[None]:
    """Data groups have replicas in sites that only read, and each of them votes."""
    original = PlacementTable.is_draining

    def is_draining(self: PlacementTable, member: int) -> bool:
        with patch.object(Sites, "only_reads", lambda self, member: False):
            return original(self, member)

    with patch.object(PlacementTable, "is_draining", is_draining):
        yield


@contextmanager
def agree_to_everybody() -> Iterator[None]:
    """A member agrees to each promotion that it is asked about."""
    with patch.object(Agreement, "promise", lambda self, to, now: True):
        yield


@contextmanager
def stay_with_more() -> Iterator[None]:
    """A member of a promoted site stays, though it got more from the first site since."""
    with patch.object(Sites, "has_more", lambda self, promotions, term, entry: False):
        yield


@contextmanager
def readers_are_copies() -> Iterator[None]:
    """A replica that only reads counts as one of a group's copies."""
    with patch.object(PlacedGroup, "members", PlacedGroup.everybody):
        yield


@contextmanager
def wait_for_whole_readers() -> Iterator[None]:
    """Nothing else is done to a group until a replica that only reads has everything."""
    original = steps._read

    def read(states: Any, task: Any, group: PlacedGroup) -> Any:
        if all(each.is_whole for each in group.readers):
            return original(states, task, group)
        return steps.TaskStep(waits_for="copying")

    with patch.object(steps, "_read", read):
        yield


@contextmanager
def leave_groups_behind() -> Iterator[None]:
    """A promotion forgets the replicas that only read."""
    with patch.object(operations, "go_on_with_readers", lambda placement, members, own: []):
        yield


@contextmanager
def go_on_beside_voters() -> Iterator[None]:
    """A promotion lets a replica that only read go on, though one that votes is left."""
    original = operations.go_on_with_readers

    def go_on(placement: Any, members: Any, own: int) -> Any:
        groups = {n: replace(each, replicas=()) for n, each in placement.groups.items()}
        return original(replace(placement, groups=groups), members, own)

    with patch.object(operations, "go_on_with_readers", go_on):
        yield


@contextmanager
def bring_to_readers() -> Iterator[None]:
    """A replica that only reads takes what publishers bring, over the long line."""

    def is_to_come(self: Any, partition: int) -> bool:
        table = self._host.cluster.placement
        return self._presence.number in table.groups[table.group_of(partition)].everybody

    with patch.object(DataGroups, "is_to_come", is_to_come):
        yield


@contextmanager
def forget_producers_at_a_promotion() -> Iterator[None]:
    """A promoted site knows nothing of what producers have sent before."""
    original: Any = CHANGES[PromoteSiteCommand]

    def promote(whole: Any, command: Any) -> Any:
        whole.producers.batches.clear()
        return original(whole, command)

    with patch.dict(cast(Any, CHANGES), {PromoteSiteCommand: promote}):
        yield


@contextmanager
def merge_from_anywhere() -> Iterator[None]:
    """A session goes on wherever its publisher still has something."""
    with patch.object(merges, "follows", lambda place, part: True):
        yield


@contextmanager
def bring_to_whoever_is_named() -> Iterator[None]:
    """Members of a site that only reads take what publishers bring, if a client names them."""
    with patch.object(RoutedIntake, "_check_takes", lambda self, topic, partition: None):
        yield


@contextmanager
def gather_for_everybody() -> Iterator[None]:
    """What learners near the leader are sent is gathered, too."""
    with patch.object(Sites, "who_only_read", lambda self, members: frozenset(members)):
        yield


@contextmanager
def forget_what_was_gathered() -> Iterator[None]:
    """What waits for those far away is sent with what comes next, whenever that is."""
    with patch.object(replication, "GATHER_S", float("inf")):
        yield


@contextmanager
def gather_sessions() -> Iterator[None]:
    """Session bytes are gathered as merged ones are, and acknowledgements wait."""
    with patch.object(bulk_server, "ServedMerged", object):
        yield


_ROUTING = "tests/sequencer/test_routing.py::test_"
_BULK = "tests/sequencer/test_bulk_server.py::"
_HOMES = "tests/spark/test_homes.py::test_"
_READERS = "tests/placement/test_readers.py::test_"
_SITES = "tests/sequencer/test_sites.py::"
_PLANNER = "tests/placement/test_planner.py::test_"
_PROMOTED = "tests/sequencer/test_promotion.py::test_"
_NEAR = "tests/replicator/test_scenarios.py::test_scenario[pull_receiver_near]"
SITES = (
    (
        "sites.1",
        make_sites_of_mistyped_names,
        _SITES + "test_a_member_is_in_a_site_only_if_the_cluster_has_it",
    ),
    (
        "sites.2",
        voters_anywhere,
        _SITES + "test_where_some_sites_only_read_only_members_of_others_may_vote",
    ),
    ("sites.3", gateway_asks_its_copiers, _SITES + "test_each_byte_crosses_the_line_once"),
    (
        "sites.3",
        take_sessions_from_afar,
        _SITES + "test_where_some_sites_only_read_only_members_of_others_may_vote",
    ),
    (
        "raft.38",
        gather_for_everybody,
        _SITES + "test_only_what_is_for_sites_that_only_read_is_gathered",
    ),
    (
        "raft.38",
        forget_what_was_gathered,
        "tests/consensus/test_leading.py::test_what_is_for_those_far_away_is_gathered",
    ),
    (
        "raft.38",
        gather_sessions,
        _BULK + "test_session_bytes_go_at_once_and_merged_bytes_are_gathered",
    ),
    ("sites.4", silent_is_current, _SITES + "test_lag_that_is_not_known_is_not_nothing"),
    (
        "sites.6",
        promote_under_the_same_id,
        _PROMOTED + "a_promoted_site_votes_and_the_cluster_has_another_id",
    ),
    (
        "sites.7",
        begin_again_after_a_promotion,
        _PROMOTED + "who_is_of_before_takes_no_part_and_who_stays_follows",
    ),
    (
        "sites.7",
        acknowledge_after_a_promotion,
        _PROMOTED + "a_running_node_of_before_ends_when_it_hears_of_a_promotion",
    ),
    (
        "sites.8",
        start_without_asking,
        _PROMOTED + "who_is_of_before_takes_no_part_and_who_stays_follows",
    ),
    (
        "sites.9",
        promote_beside_a_leader,
        _PROMOTED + "a_site_is_promoted_only_when_nobody_else_is_there",
    ),
    (
        "sites.9",
        promote_without_the_newest,
        _PROMOTED + "the_newest_of_a_site_goes_on_with_all_that_are_not_given_up",
    ),
    (
        "transactions.8",
        take_any_gap_after_a_promotion,
        _PROMOTED + "a_producer_goes_on_behind_what_was_lost_once",
    ),
    ("sites.5", stay_with_the_late, _NEAR),
    ("sites.5", return_at_once, _NEAR),
    (
        "sites.5",
        spark_asks_anybody,
        _HOMES + "a_near_node_is_asked_as_soon_as_it_is_known_where_nodes_are",
    ),
    (
        "sites.10",
        lead_back_at_once,
        _SITES + "test_leadership_moves_back_to_who_has_been_well_for_a_minute",
    ),
    (
        "sites.10",
        even_out_leaders_over_all_sites,
        _PLANNER + "leaders_are_preferred_in_sites_that_should_have_them",
    ),
    (
        "sites.13",
        replicas_vote_anywhere,
        _PLANNER + "replicas_vote_so_there_are_none_where_a_site_only_reads",
    ),
    ("sites.15", readers_are_copies, _READERS + "it_is_no_copy_that_counts"),
    ("sites.16", wait_for_whole_readers, _READERS + "nobody_waits_until_it_is_whole"),
    (
        "sites.17",
        leave_groups_behind,
        _READERS + "a_promoted_site_goes_on_with_what_was_only_read_there",
    ),
    (
        "sites.17",
        go_on_beside_voters,
        _READERS + "a_promoted_site_goes_on_with_what_was_only_read_there",
    ),
    (
        "sessions.12",
        bring_to_readers,
        _ROUTING + "publishers_bring_nothing_to_a_replica_that_only_reads",
    ),
    (
        "sessions.25",
        forget_producers_at_a_promotion,
        _PROMOTED + "a_producer_goes_on_behind_what_was_lost_once",
    ),
    (
        "sessions.25",
        merge_from_anywhere,
        _PROMOTED + "a_session_whose_files_are_gone_does_not_go_on_behind_a_hole",
    ),
    (
        "sessions.12",
        bring_to_whoever_is_named,
        _ROUTING + "where_a_site_only_reads_nobody_takes_what_publishers_bring",
    ),
    ("sites.12", stay_with_more, _PROMOTED + "who_got_more_since_is_of_before"),
    ("sites.14", stay_by_hearsay, _PROMOTED + "only_who_knows_of_a_promotion_says_who_stays"),
    ("sites.11", agree_to_everybody, _SITES + "test_a_member_agrees_to_one_promotion_at_a_time"),
)
"""Rule, bug, and the test that finds it."""
