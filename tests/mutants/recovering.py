"""Planted bugs in the recovery of data groups, and of group 0 where there are some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from samelog.placement import changes
from samelog.placement.changes import AnyChange, ConfirmGroup, RecoverGroup
from samelog.placement.table import PlacementTable
from samelog.placement.values import NumbersLeftOut, PlacedGroup, Placement
from samelog.sequencer import recovery
from samelog.sequencer.data_groups import leftovers, recovering
from samelog.sequencer.merge.transaction_view import TransactionView
from samelog.sequencer.raft import alone
from samelog.sequencer.spanning import steps
from samelog.sequencer.state.commands import decode_commands, encode_commands
from samelog.sequencer.state.instructions import Merge
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.units import recovered_offsets


@contextmanager
def go_on_with_what_is_new() -> Iterator[None]:
    """A replica that was made for a group that has yet to go on alone goes on alone itself."""
    with patch.object(PlacedGroup, "is_to_go_on_with", lambda self, member: self.is_recovering):
        yield


@contextmanager
def recover_what_has_a_majority() -> Iterator[None]:
    """A group goes on with whichever replica an operator names."""

    def recover(table: PlacementTable, name: str, group: int, *suspect: Any) -> Sequence[AnyChange]:
        member = table.named(name)
        return [RecoverGroup(group, 0 if member is None else member.number)]

    with patch("samelog.placement.operations.recover", recover):
        yield


@contextmanager
def believe_the_life_before() -> Iterator[None]:
    """Lost replicas that come back say what the group's configuration is."""
    original = changes._confirm

    def confirm(placement: Placement, change: ConfirmGroup) -> None:
        group = placement.groups[change.number]
        placement.groups[change.number] = replace(group, recovered=0)
        original(placement, change)

    with patch.dict(changes._APPLY, {ConfirmGroup: confirm}):
        yield


@contextmanager
def begin_tasks_before_it_goes_on() -> Iterator[None]:
    """A group that has yet to go on alone gets replicas."""
    with patch.object(PlacedGroup, "is_recovering", property(lambda self: False)):
        yield


@contextmanager
def go_on_alone_again() -> Iterator[None]:
    """A replica that has gone on alone does so again."""
    calls: list[int] = []
    original = recovering.go_on_alone

    def go_on(fs: Any, log: Any, data: str, placed: PlacedGroup, *rest: Any, **named: Any) -> bool:
        calls.append(placed.number)
        later = replace(placed, recovered=placed.recovered + len(calls))
        return original(fs, log, data, later, *rest, **named)

    with patch.object(recovering, "go_on_alone", go_on):
        yield


@contextmanager
def go_on_in_the_same_term() -> Iterator[None]:
    """The new life's terms are those of the old one."""
    with patch.object(alone, "TERM_STEP", 0):
        yield


@contextmanager
def remove_the_life_before() -> Iterator[None]:
    """What lost replicas had is removed when they come back."""

    def set_aside(fs: Any, path: str, group: int, replica: int) -> None:
        if fs.exists(path):
            fs.remove_tree(path)

    with patch.object(leftovers, "set_aside", set_aside):
        yield


@contextmanager
def take_what_is_left_out_for_gone() -> Iterator[None]:
    """What has a number that a recovered group 0 left out is taken for deleted."""
    with patch.object(
        NumbersLeftOut, "has_given", lambda self, kind, number, behind: number < behind
    ):
        yield


@contextmanager
def give_lost_numbers_again() -> Iterator[None]:
    """A recovered group 0 gives the numbers again that lost entries had given."""
    with patch.object(recovery, "leave_numbers_out", lambda state: None):
        yield


@contextmanager
def leave_lost_pins() -> Iterator[None]:
    """What a recovered group had prepared, and lost, is not prepared again."""
    original = steps._of_unit

    def of_unit(found: Any, who: Any, known: Any, own: Any, has_forgotten: bool = False) -> None:
        original(found, who, known, own)

    with patch.object(steps, "_of_unit", of_unit):
        yield


@contextmanager
def give_up_what_was_committed() -> Iterator[None]:
    """What a recovered group has pinned, and group 0 has done with, is given up."""
    with patch.object(steps, "_was_committed", lambda cluster, here, number: False):
        yield


@contextmanager
def leave_lost_markers() -> Iterator[None]:
    """Markers that a recovered group lost are not written again."""
    with patch.object(TransactionView, "_lost", lambda self: iter(())):
        yield


@contextmanager
def forget_what_was_published() -> Iterator[None]:
    """Records of a stage that wait to be executed are left out by who goes on alone."""

    def merges_of(command: Any) -> list[Merge]:
        return [command] if isinstance(command, Merge) else []

    with patch.object(alone, "merges_of", merges_of):
        yield


@contextmanager
def execute_for_what_is_gone() -> Iterator[None]:
    """What is for the gone is kept."""
    original = alone._replay

    def replay(machine: StateMachine, waiting: dict[int, list[Merge]], data: bytes) -> None:
        before = {number: [*merges] for number, merges in waiting.items()}
        for command in decode_commands(data):
            original(machine, waiting, encode_commands([command]))
            before.update({number: [*merges] for number, merges in waiting.items()})
        waiting.update(before)

    with patch.object(alone, "_replay", replay):
        yield


@contextmanager
def forget_where_logs_ended() -> Iterator[None]:
    """A replica that goes on alone forgets where its logs ended, and group 0 lowers nothing."""
    with patch.object(recovering, "_ends", lambda state: None):
        yield


@contextmanager
def leave_offsets_ahead() -> Iterator[None]:
    """Groups are ahead of a log that lost records, and pass over as many that come."""
    with patch.object(recovered_offsets, "_ahead", lambda state, ends: iter(())):
        yield


@contextmanager
def lower_only_what_is_decided() -> Iterator[None]:
    """A transaction commits an offset of records that are lost."""
    with patch.object(recovered_offsets, "_lower_undecided", lambda state, ends: None):
        yield


@contextmanager
def pass_over_views() -> Iterator[None]:
    """Of views that a partition has, positions stay ahead of it."""
    with patch.object(recovered_offsets, "base_number", lambda state, number: number):
        yield


_TABLE = "tests/placement/test_recovering.py::"
_GROUP = "tests/sequencer/test_group_recovery.py::"
_LOWERING = "tests/sequencer/test_lowering.py::test_"

RECOVERING = (
    (
        "recovery.2",
        go_on_with_what_is_new,
        _TABLE + "test_a_replica_that_is_new_does_not_go_on_alone",
    ),
    (
        "recovery.2",
        recover_what_has_a_majority,
        _TABLE + "test_only_what_has_lost_its_majority_goes_on_with_one",
    ),
    (
        "recovery.2",
        believe_the_life_before,
        _TABLE + "test_the_lost_replicas_confirm_nothing_any_more",
    ),
    (
        "recovery.2",
        begin_tasks_before_it_goes_on,
        _TABLE + "test_a_task_that_changes_the_group_ends_and_none_begins_before_it_goes_on",
    ),
    ("recovery.2", go_on_alone_again, _GROUP + "test_it_does_so_once"),
    (
        "recovery.2",
        go_on_in_the_same_term,
        _GROUP + "test_it_takes_all_that_it_holds_and_votes_alone",
    ),
    ("recovery.2", remove_the_life_before, _GROUP + "test_what_was_of_the_life_before_is_kept"),
    (
        "recovery.2",
        forget_what_was_published,
        _GROUP + "test_what_was_published_waits_and_what_was_refused_does_not",
    ),
    (
        "recovery.2",
        execute_for_what_is_gone,
        _GROUP + "test_nothing_waits_for_a_partition_that_is_gone",
    ),
    (
        "recovery.3",
        take_what_is_left_out_for_gone,
        _TABLE + "test_what_a_recovered_table_may_have_forgotten_is_unknown_and_not_gone",
    ),
    (
        "recovery.3",
        give_lost_numbers_again,
        "tests/sequencer/test_recovery.py::test_a_node_with_data_groups_goes_on_with_them",
    ),
    (
        "transactions.7",
        leave_lost_pins,
        _GROUP + "test_what_was_decided_is_pinned_again_where_that_was_lost",
    ),
    (
        "transactions.7",
        give_up_what_was_committed,
        _GROUP + "test_what_was_committed_is_carried_out_where_that_was_lost",
    ),
    (
        "transactions.7",
        leave_lost_markers,
        _GROUP + "test_markers_that_were_lost_are_written_again",
    ),
    (
        "recovery.5",
        forget_where_logs_ended,
        _GROUP + "test_it_takes_all_that_it_holds_and_votes_alone",
    ),
    (
        "recovery.5",
        leave_offsets_ahead,
        _LOWERING + "offsets_behind_the_end_are_lowered_to_it_and_told",
    ),
    (
        "recovery.5",
        lower_only_what_is_decided,
        _LOWERING + "what_a_transaction_will_commit_is_lowered_too",
    ),
    ("recovery.5", pass_over_views, _LOWERING + "what_was_committed_in_a_view_is_lowered_too"),
)
"""Rule, bug, and the test that finds it."""
