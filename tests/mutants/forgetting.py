"""Planted bugs in how nodes that forgot something are told, kept out, and let in again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from samelog.consensus import election, follower, raft, replication
from samelog.consensus.core import Core, Leadership
from samelog.consensus.messages import AppendReply
from samelog.consensus.progress import Progress
from samelog.consensus.quorum import Tally, tally
from samelog.sequencer import dispatch
from samelog.sequencer.cluster import lives, strangers
from samelog.sequencer.cluster.members import Members
from samelog.sequencer.cluster.node_dir import HostBoot, NodeDirectory
from samelog.sequencer.cluster.own_life import OwnLife
from samelog.sequencer.cluster.peers import Callers
from samelog.sequencer.cluster.strangers import Stranger
from samelog.sequencer.data_groups import seats
from samelog.wire.bounds import Life
from samelog.wire.messages import AnyMessage, Hello
from samelog.wire.peer_messages import MemberList


@contextmanager
def trust_who_counts_again() -> Iterator[None]:
    """Who counts again by the word of all voters has replicas that no other directory had."""
    with patch.object(seats, "_is_first", lambda replica, record: True):
        yield


@contextmanager
def copies_are_sure() -> Iterator[None]:
    """A copy of a node's directory counts like the one it was made of."""
    same = staticmethod(lambda fs, path, record: record)
    with patch.object(NodeDirectory, "_compared", same):
        yield


@contextmanager
def take_failed_writes_for_rot() -> Iterator[None]:
    """A node does not note that a sync failed, so its next start takes lost writes for rot."""
    with patch.object(NodeDirectory, "has_lost_writes", lambda self: None):
        yield


@contextmanager
def compare_bytes_once_only() -> Iterator[None]:
    """The start after a loss of power is the only one that counts damage to the loss, though it
    ends before it has compared its logs with their bytes.
    """
    original = NodeDirectory._begin_life

    def forget(fs: Any, config: Any, record: Any, host: HostBoot, incarnation: str) -> Any:
        return original(fs, config, record, replace(host, is_uncompared=False), incarnation)

    with patch.object(NodeDirectory, "_begin_life", staticmethod(forget)):
        yield


@contextmanager
def agree_in_part() -> Iterator[None]:
    """Suspects elect a leader by a majority of themselves."""

    def count(votes: Mapping[int, bool], voters: Collection[int], doubted: Any = ()) -> Tally:
        return tally(votes, voters)

    with patch.object(election, "tally", count):
        yield


@contextmanager
def let_in_by_any_entry() -> Iterator[None]:
    """A suspect counts again by an entry that let an earlier life of it in."""

    def is_let_in(self: OwnLife) -> bool:
        known = self._machine.state.members.started.get(self._directory.record.number)
        return known is not None and known.let_in != ""

    with patch.object(OwnLife, "_is_let_in", is_let_in):
        yield


@contextmanager
def believe_any_boot() -> Iterator[None]:
    """A life that does not know the one before it is taken for a later one."""
    with patch.object(lives, "descends", lambda life, known: True):
        yield


@contextmanager
def compare_each_introduction() -> Iterator[None]:
    """A leader compares acknowledgements with every introduction, even later ones of a life."""
    original = lives.Lives.contradiction

    def contradiction(self: lives.Lives, number: int, life: Life) -> lives.Contradiction | None:
        met = self._met.pop(number, None)
        try:
            return original(self, number, life)
        finally:
            if met is not None:
                self._met[number] = met

    with patch.object(lives.Lives, "contradiction", contradiction):
        yield


@contextmanager
def decide_too_early() -> Iterator[None]:
    """An id that may yet be replaced is taken for the cluster's."""
    with patch.object(lives, "UNDECIDED", ""):
        yield


@contextmanager
def displace_the_living() -> Iterator[None]:
    """Another life of a node takes the place of one that is connected."""
    with patch.object(Callers, "has_other", lambda self, number, incarnation: False):
        yield


@contextmanager
def hear_older_lives() -> Iterator[None]:
    """What a connection of an older life says counts though a newer one was met."""

    def add(self: Callers, server: Any) -> None:
        self._servers[server.number].append(server)

    with patch.object(Callers, "add", add):
        yield


@contextmanager
def begin_with_a_majority() -> Iterator[None]:
    """A new group elects its first leader without some of its voters."""
    with patch.object(Core, "is_beginning", property(lambda self: False)):
        yield


@contextmanager
def compare_entries_only() -> Iterator[None]:
    """A follower that gets no entries does not look whether its history is the leader's."""
    with patch.object(follower, "_check_committed", lambda core, index, term: None):
        yield


@contextmanager
def speak_to_other_clusters() -> Iterator[None]:
    """Nodes of two clusters of one name vote for each other."""
    with patch.object(lives, "_check_same_cluster", lambda own, peer: None):
        yield


@contextmanager
def believe_who_is_ahead() -> Iterator[None]:
    """What a node acknowledges beyond the leader's log counts as all that the leader has."""
    original = replication.on_append_reply

    def on_append_reply(core: Core, sender: int, message: AppendReply) -> None:
        match = min(message.match, core.log.last_index)
        original(core, sender, AppendReply(message.term, message.stream, match, message.counts))

    with patch.dict(raft._HANDLERS, {AppendReply: on_append_reply}):
        yield


@contextmanager
def ask_only_who_lacks_entries() -> Iterator[None]:
    """Who has all is not asked where it stands."""
    original = replication._ask_where

    def ask(core: Core, lead: Leadership, peer: int, progress: Progress) -> None:
        if progress.match < core.log.last_index:
            original(core, lead, peer, progress)

    with patch.object(replication, "_ask_where", ask):
        yield


@contextmanager
def refuse_newcomers() -> Iterator[None]:
    """Who is not known here is refused, though it may have been added since."""
    with patch.object(dispatch, "may_be_newer", lambda *_, **__: False):
        yield


@contextmanager
def welcome_the_removed() -> Iterator[None]:
    """Whoever says that it is a member is asked for its list, whatever its number."""
    original = strangers.may_be_newer

    def may_be_newer(hello: Hello, *, next_member: int, cluster_id: str) -> bool:
        return original(hello, next_member=0, cluster_id=cluster_id)

    with patch.object(strangers, "may_be_newer", may_be_newer):
        yield


@contextmanager
def believe_any_stranger() -> Iterator[None]:
    """A stranger's list counts also if the stranger is not in it."""

    def hear(self: Stranger, message: AnyMessage) -> None:
        if isinstance(message, MemberList):
            self._listener.on_peer_message(self._hello.number or 0, message)
        original(self, message)

    original = Stranger.on_message
    with patch.object(Stranger, "on_message", hear):
        yield


@contextmanager
def take_older_lists() -> Iterator[None]:
    """A newcomer takes the list of a member that lags for newer than its own first one."""

    def init(self: Members, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self._heard_version = 0

    original = Members.__init__
    with patch.object(Members, "__init__", init):
        yield


_LEADING, _LIVES = "tests/consensus/test_leading.py::", "tests/sequencer/test_lives.py::"
_DIRECTORY, _STRANGERS = "tests/sequencer/test_node_dir.py::", "tests/sequencer/test_strangers.py::"

FORGETTING = (
    (
        "raft.1",
        copies_are_sure,
        _DIRECTORY + "test_a_copy_of_a_directory_is_suspect_however_it_was_made",
    ),
    (
        "raft.7",
        agree_in_part,
        _LEADING + "test_no_part_elects_a_leader_without_a_majority_of_sure_ones",
    ),
    (
        "raft.7",
        let_in_by_any_entry,
        _LIVES + "test_a_suspect_counts_again_by_an_entry_that_names_this_very_life",
    ),
    (
        "raft.7",
        ask_only_who_lacks_entries,
        _LEADING + "test_who_is_let_in_is_in_step_though_nothing_comes",
    ),
    ("raft.8", believe_any_boot, _LIVES + "test_who_has_forgotten_something_is_found_out"),
    (
        "raft.8",
        compare_each_introduction,
        _LIVES + "test_acknowledgements_are_compared_once_per_life",
    ),
    ("raft.8", displace_the_living, _LIVES + "test_a_life_that_is_connected_is_not_displaced"),
    ("raft.8", hear_older_lives, _LIVES + "test_a_life_that_is_connected_is_not_displaced"),
    (
        "raft.9",
        begin_with_a_majority,
        _LEADING + "test_a_new_group_elects_its_first_leader_by_the_votes_of_all",
    ),
    ("raft.9", decide_too_early, _LIVES + "test_who_has_forgotten_something_is_found_out"),
    (
        "raft.9",
        speak_to_other_clusters,
        _LIVES + "test_two_clusters_of_one_name_have_nothing_to_say_to_each_other",
    ),
    (
        "raft.10",
        believe_who_is_ahead,
        (
            "tests/consensus/test_replicating.py::"
            "test_who_acknowledges_what_the_leader_lacks_is_remembered_and_not_counted"
        ),
    ),
    (
        "raft.10",
        compare_entries_only,
        "tests/consensus/test_paper.py::test_another_history_is_noticed_without_entries",
    ),
    (
        "raft.28",
        trust_who_counts_again,
        (
            "tests/sequencer/test_seats.py::"
            "test_who_counts_again_without_being_let_in_is_sure_of_nothing_from_before"
        ),
    ),
    ("raft.13", refuse_newcomers, _STRANGERS + "test_who_was_cut_off_meets_those_that_came_since"),
    (
        "raft.13",
        welcome_the_removed,
        _STRANGERS + "test_who_was_removed_or_is_of_another_cluster_is_none",
    ),
    (
        "raft.13",
        take_older_lists,
        (
            "tests/sequencer/test_members.py::"
            "test_a_newcomer_goes_by_the_list_that_it_was_added_by_until_it_hears_a_newer_one"
        ),
    ),
    (
        "raft.13",
        believe_any_stranger,
        _STRANGERS + "test_a_list_without_its_teller_counts_for_nothing",
    ),
    (
        "raft.51",
        take_failed_writes_for_rot,
        "tests/sequencer/test_doubt.py::test_a_failed_sync_is_as_a_loss_of_power_to_the_next_life",
    ),
    (
        "raft.51",
        compare_bytes_once_only,
        "tests/sequencer/test_doubt.py::test_a_start_that_ends_early_leaves_the_loss_to_the_next_one",
    ),
)
"""Rule, bug, and the test that finds it."""
