"""Planted bugs in groups of samelog's own subscribers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.admin.group_answers import AssignedPartition
from samelog.kafka.groups import natives
from samelog.kafka.groups.consumer_groups import ConsumerGroup
from samelog.kafka.groups.coordinator import GroupCoordinator
from samelog.kafka.groups.requests import Caller, GroupBeat, OffsetCommit
from samelog.subscriber.cursor import Cursor
from samelog.subscriber.engine import Engine
from samelog.subscriber.groups.membership import Claim, GroupMembership, MemberLife
from samelog.subscriber.groups.position_table import PositionTable
from samelog.subscriber.groups.sharing import InHand, Sharing
from samelog.subscriber.pacing import Pacing
from samelog.subscriber.start import StartFinder, WantedStart


@contextmanager
def let_groups_mix() -> Iterator[None]:
    """Anybody may be a member of any group, as whoever he says he is."""
    with patch.object(natives, "stranger", lambda group, request: None):
        yield


@contextmanager
def commit_behind_the_hand_over() -> Iterator[None]:
    """A member commits a partition that it has given up, and another one has."""

    def committable(group: ConsumerGroup, request: GroupBeat) -> Sequence[OffsetCommit]:
        return request.commits

    with patch.object(natives, "committable", committable):
        yield


@contextmanager
def show_positions_in_any_group() -> Iterator[None]:
    """How far a named subscriber has come overwrites what a group's members committed."""

    def note(
        self: GroupCoordinator, group: str, commits: Sequence[OffsetCommit], waiter: Any
    ) -> None:
        self.commit(Caller(group), commits, waiter)

    with patch.object(GroupCoordinator, "note", note):
        yield


@contextmanager
def wait_for_what_holds_no_record() -> Iterator[None]:
    """The application is waited for although no record is in its hands."""
    original = Cursor.finish

    def finish(self: Cursor, chunk: Any, *, hands_out: bool = False) -> None:
        original(self, chunk, hands_out=True)

    with patch.object(Cursor, "finish", finish):
        yield


@contextmanager
def hand_over_at_once() -> Iterator[None]:
    """A partition is said to be given up while the application deals with its records."""
    original = GroupMembership._assigned

    def assigned(
        self: GroupMembership, life: MemberLife, given: Sequence[AssignedPartition]
    ) -> None:
        original(self, life, given)
        life.leaving.clear()

    with patch.object(GroupMembership, "_assigned", assigned):
        yield


@contextmanager
def hand_over_without_the_position() -> Iterator[None]:
    """What a member did last in a partition is not committed with its giving up."""
    original = GroupMembership.commit

    def commit(self: GroupMembership, claim: Claim, offset: int) -> bool:
        if claim.number in self._life.leaving:
            self._life.commits.pop(claim.number, None)
            return False
        return original(self, claim, offset)

    with patch.object(GroupMembership, "commit", commit):
        yield


@contextmanager
def give_up_what_was_taken() -> Iterator[None]:
    """The group is heeded although records were taken that nobody was handed yet."""
    with patch.object(Pacing, "_is_due_in_group", False):
        yield


@contextmanager
def begin_as_if_alone() -> Iterator[None]:
    """A member begins where its own `start` says, whatever its group has committed."""
    original = StartFinder.wanted_of

    def wanted_of(self: StartFinder, topic: str, topic_id: str, partition: int) -> WantedStart:
        self._is_shared = False
        return original(self, topic, topic_id, partition)

    with patch.object(StartFinder, "wanted_of", wanted_of):
        yield


@contextmanager
def begin_in_silence() -> Iterator[None]:
    """Where a member began is not committed before it has dealt with something."""
    original = Engine._start

    def start(self: Engine, name: tuple[str, int], starting: Any) -> None:
        original(self, name, starting)
        if name in self.cursors:
            self._saved[name] = self.cursors[name].position

    with patch.object(Engine, "_start", start):
        yield


@contextmanager
def be_a_member_for_ever() -> Iterator[None]:
    """A member that nobody has heard of goes on, though others were given what it had."""
    with patch.object(GroupMembership, "_expire", lambda self, now: None):
        yield


@contextmanager
def give_before_it_is_given_up() -> Iterator[None]:
    """A member is given what another one has not given up yet."""
    original = ConsumerGroup.reconcile

    def reconcile(self: ConsumerGroup, member_id: str) -> None:
        others = {name: one for name, one in self.members.items() if name != member_id}
        for name in others:
            del self.members[name]
        original(self, member_id)
        self.members.update(others)

    with patch.object(ConsumerGroup, "reconcile", reconcile):
        yield


@contextmanager
def keep_what_was_lost() -> Iterator[None]:
    """What a member had in an earlier life is handed out on."""
    original: Callable[..., bool] = Sharing._tend

    def tend(self: Sharing, engine: Any, name: Any, claim: Claim, *rest: Any, **more: Any) -> bool:
        claims, leaving = rest
        if claims.get(name) is not claim and leaving.get(name) is not claim:
            return True
        return original(self, engine, name, claim, *rest, **more)

    with patch.object(Sharing, "_tend", tend):
        yield


@contextmanager
def move_positions_of_others() -> Iterator[None]:
    """A transaction moves a position wherever it is, and whoever has the partition."""

    def advance(self: PositionTable, in_hand: Sequence[InHand]) -> None:
        for part in in_hand:
            self._run(
                f"UPDATE {self._table} SET next_offset = ? WHERE group_name = ? AND topic = ? "
                "AND partition_number = ? AND log_id = ?",
                (part.next_offset, self._group, part.topic, part.partition, part.topic_id),
            )

    with patch.object(PositionTable, "advance", advance):
        yield


@contextmanager
def claim_nothing() -> Iterator[None]:
    """A member reads the position of a partition, and leaves the row to the one before."""
    original = PositionTable._claim

    def claim(self: PositionTable, claim: Claim) -> int | None:
        found = original(self, claim)
        self._run(f"UPDATE {self._table} SET epoch = 0 WHERE topic = ?", (claim.topic,))
        return found

    with patch.object(PositionTable, "_claim", claim):
        yield


_NATIVES = "tests/kafka/groups/test_natives.py::"
_MEMBERS = "tests/subscriber/test_group_members.py::"

NATIVE_GROUPS: tuple[tuple[str, Callable[[], Any], str], ...] = (
    ("readers.12", let_groups_mix, _NATIVES + "test_a_group_has_members_of_one_kind"),
    (
        "readers.13",
        commit_behind_the_hand_over,
        _NATIVES + "test_a_member_commits_what_it_has_until_it_has_given_it_up",
    ),
    (
        "readers.13",
        show_positions_in_any_group,
        _NATIVES + "test_a_named_subscriber_s_position_is_kept_from_groups",
    ),
    (
        "readers.14",
        wait_for_what_holds_no_record,
        _MEMBERS + "test_offsets_without_a_record_are_waited_for_by_nobody",
    ),
    (
        "readers.14",
        hand_over_at_once,
        _NATIVES + "test_nothing_comes_twice_where_everybody_is_asked",
    ),
    (
        "readers.14",
        hand_over_without_the_position,
        _NATIVES + "test_nothing_comes_twice_where_everybody_is_asked",
    ),
    ("readers.14", give_up_what_was_taken, _MEMBERS + "test_what_was_taken_is_handed_out_first"),
    ("readers.15", begin_as_if_alone, _MEMBERS + "test_what_the_group_has_committed_counts"),
    ("readers.15", begin_in_silence, _MEMBERS + "test_where_it_begins_is_committed"),
    ("readers.16", be_a_member_for_ever, _NATIVES + "test_nothing_is_left_out_in_a_random_life"),
    (
        "readers.16",
        give_before_it_is_given_up,
        _NATIVES + "test_nothing_is_left_out_in_a_random_life",
    ),
    ("readers.16", keep_what_was_lost, _NATIVES + "test_nothing_is_left_out_in_a_random_life"),
    (
        "readers.17",
        move_positions_of_others,
        _NATIVES + "test_results_are_there_once_in_a_random_life",
    ),
    (
        "readers.17",
        claim_nothing,
        _MEMBERS + "test_a_late_transaction_of_an_earlier_member_is_undone",
    ),
)
"""Rule, bug, and the test that finds it."""
