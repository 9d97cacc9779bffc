"""Planted bugs in the way of a partition from group to group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from samelog.archiver.compaction import CompactCommand, apply_order
from samelog.archiver.history import ArchiveHistory
from samelog.consensus import Busy, NotLeader
from samelog.placement import steps
from samelog.placement.tasks import Action
from samelog.placement.values import PassStage, Placement
from samelog.sequencer.cluster import catching_up
from samelog.sequencer.cluster.repair.merged import MergedRepair
from samelog.sequencer.data_groups import keeping
from samelog.sequencer.data_groups import passing as driver
from samelog.sequencer.data_groups.leftovers import Leftovers
from samelog.sequencer.data_groups.passing import PartitionPasses
from samelog.sequencer.state import machine
from samelog.sequencer.state.tables import epochs
from samelog.sequencer.state.tables.open_transactions import OpenTransactionsTable
from samelog.sequencer.state.tables.partitions import PartitionsTable
from samelog.sequencer.state.tables.placement import OpenPartition
from samelog.sequencer.state.tables.producers import ProducersTable
from samelog.sequencer.state.tables.sessions import SessionsTable
from samelog.sequencer.state.tables.transfers import PassPartition, TransfersTable
from samelog.sequencer.state.tables.watermarks import WatermarksTable
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units import moves


@contextmanager
def merge_behind_the_seal() -> Iterator[None]:
    """A partition that is on its way takes records in both groups."""
    with patch.object(TransfersTable, "is_on_its_way", lambda self, partition: False):
        yield


@contextmanager
def leave_a_table_out() -> Iterator[None]:
    """Nothing tells the watermarks what happens to partitions."""
    original = State.partition_tables

    def most(self: State) -> dict[str, Any]:
        tables = original.__get__(self)
        return {name: table for name, table in tables.items() if name != "watermarks"}

    with patch.object(State, "partition_tables", property(most)):
        yield


@contextmanager
def forget_the_inputs() -> Iterator[None]:
    """The new group does not learn how far sessions are merged."""
    with patch.object(SessionsTable, "import_", lambda *_: None):
        yield


@contextmanager
def forget_the_batches() -> Iterator[None]:
    """The new group does not learn which batches and ids were merged."""
    nothing = patch.object(ProducersTable, "import_", lambda *_: None)
    with nothing, patch.object(WatermarksTable, "import_", lambda *_: None):
        yield


@contextmanager
def forget_the_epochs() -> Iterator[None]:
    """Leader epochs of a partition begin with the terms of its new group."""
    with patch.object(epochs, "EPOCHS_PER_MOVE", 0):
        yield


@contextmanager
def end_runs_for_good() -> Iterator[None]:
    """A run that has ended in the new group takes no input that comes later."""
    original = SessionsTable._run_here

    def run_here(self: SessionsTable, carried: Any) -> Any:
        run = original(self, carried)
        return None if run is not None and run.closed and not carried.run.closed else run

    with patch.object(SessionsTable, "_run_here", run_here):
        yield


@contextmanager
def begin_runs_twice() -> Iterator[None]:
    """A partition is opened though an older run of one of its sessions is open in the new group."""
    with patch.object(SessionsTable, "in_the_way", lambda *_: None):
        yield


@contextmanager
def forget_the_schemas() -> Iterator[None]:
    """The new group does not learn by which versions of its topic's schema records were written."""
    with patch.object(moves, "_take_up_schemas", lambda *_: None):
        yield


@contextmanager
def number_targets_as_before() -> Iterator[None]:
    """Copies of archived segments are looked for at the target that has their number here."""
    original = ArchiveHistory.came

    def came(self: ArchiveHistory, number: int, records: bytes, targets: Any) -> None:
        original(self, number, records, self._machine.state.copy_targets)

    with patch.object(ArchiveHistory, "came", came):
        yield


@contextmanager
def seal_what_is_staged() -> Iterator[None]:
    """A partition goes while records of it wait to be published with others."""
    with patch.object(SessionsTable, "holds_staged", lambda *_: False):
        yield


@contextmanager
def seal_within_a_transaction() -> Iterator[None]:
    """A partition goes while a transaction is open in it."""
    with patch.object(OpenTransactionsTable, "stable_offset", _planned):
        yield


def _planned(self: Any, partition: int, next_offset: int) -> int:
    return next_offset


@contextmanager
def seal_what_is_forbidden() -> Iterator[None]:
    """An order to seal that comes late is obeyed, though its task was cancelled."""
    original = moves._seal

    def seal(state: State, command: PassPartition) -> Any:
        known = state.transfers.passing
        if known is not None and state.transfers.pass_of(command.task) is PassStage.FORBIDDEN:
            state.transfers.passing = replace(known, stage=PassStage.HELD)
        return original(state, command)

    with patch.dict(moves._STEPS, {Action.SEAL_PARTITION: seal}):
        yield


@contextmanager
def copy_what_was_given_up() -> Iterator[None]:
    """A late order to copy restarts a move that was undone."""
    original = moves._copy

    def copy(state: State, command: PassPartition) -> Any:
        if state.transfers.pass_of(command.task) is PassStage.GONE:
            state.transfers.passing = None
        return original(state, command)

    with patch.dict(moves._STEPS, {Action.COPY_PARTITION: copy}):
        yield


@contextmanager
def obey_older_tasks() -> Iterator[None]:
    """A step counts, whatever newer task its group has heard of."""

    def pass_partition(state: State, command: PassPartition) -> Any:
        return moves._STEPS[command.action](state, command)

    with patch.dict(machine.CHANGES, {PassPartition: pass_partition}):
        yield


@contextmanager
def open_with_less() -> Iterator[None]:
    """A partition counts as open though its new group lacks some of it."""
    with patch.object(PartitionPasses, "_is_whole", lambda *_: True):
        yield


@contextmanager
def open_again_what_left() -> Iterator[None]:
    """A leader that knows an old table opens a partition that went away, empty."""

    def open_partition(state: State, command: OpenPartition) -> None:
        state.open_partition(command)

    with patch.dict(machine.CHANGES, {OpenPartition: open_partition}):
        yield


@contextmanager
def leave_what_was_copied() -> Iterator[None]:
    """A cancelled move is over while the new group has files of it."""
    original = _moved_by()

    def moved_by(task: Any, said: Any, **is_late: bool) -> Any:
        return replace(original(task, said, **is_late), has_files=False)

    with (
        patch("samelog.sequencer.data_groups.placing.moved_by", moved_by),
        patch("tests.placement.passing_world.moved_by", moved_by),
    ):
        yield


def _moved_by() -> Callable[..., Any]:
    from samelog.sequencer.data_groups.placing import moved_by

    return moved_by


@contextmanager
def void_what_is_coming() -> Iterator[None]:
    """Records that are on their way, and that nobody here has, are given up."""

    def has_given_up(self: MergedRepair, number: int) -> bool:
        return self._plan.fruitless(number) > len(self._ask())

    with patch.object(MergedRepair, "has_given_up", has_given_up):
        yield


@contextmanager
def ask_too_early() -> Iterator[None]:
    """A group is asked for what it cannot know yet, which ends every member that has it."""

    def propose(replica: Any, command: PassPartition) -> None:
        with suppress(NotLeader, Busy):
            replica.raft.group.propose([command])

    with patch.object(driver, "_propose", propose):
        yield


@contextmanager
def remove_unknown_groups() -> Iterator[None]:
    """Files of a group that no table ever named are taken for those of one that ended."""

    def leftovers(table: Placement, there: Iterable[int]) -> Leftovers:
        return Leftovers(gone=tuple(sorted(set(there) - table.groups.keys())))

    with (
        patch.object(keeping, "leftovers", leftovers),
        patch("tests.sequencer.test_leftovers.leftovers", leftovers),
    ):
        yield


@contextmanager
def seal_what_is_not_held() -> Iterator[None]:
    """A partition goes though it may have been compacted since its new group got the list."""
    original = moves._seal

    def seal(state: State, command: PassPartition) -> Any:
        if state.transfers.pass_of(command.task) is None:
            moves._enter(state, command, PassStage.HELD)
        return original(state, command)

    with patch.dict(moves._STEPS, {Action.SEAL_PARTITION: seal}):
        yield


@contextmanager
def copy_what_is_not_held() -> Iterator[None]:
    """The new group copies a partition that the old one still compacts."""
    original = steps._move

    def move(table: Any, task: Any, moved: Any) -> Any:
        return original(table, task, replace(moved, is_held=True))

    with patch.object(steps, "_move", move):
        yield


@contextmanager
def carry_no_generations() -> Iterator[None]:
    """The new group does not learn which segments were compacted."""
    original = PartitionsTable.import_

    def import_(self: PartitionsTable, number: int, exported: bytes) -> None:
        original(self, number, exported)
        self.by_number[number].compacted = None

    with patch.object(PartitionsTable, "import_", import_):
        yield


@contextmanager
def pause_for_ever() -> Iterator[None]:
    """A move that does not come to its end keeps its partition from being compacted."""
    original = steps.next_step

    def next_step(table: Any, states: Any, task: Any, moved: Any = steps.NOT_MOVED) -> Any:
        return original(table, states, task, replace(moved, is_overdue=False))

    with patch.object(steps, "next_step", next_step):
        yield


@contextmanager
def compact_what_is_held() -> Iterator[None]:
    """A partition is compacted while another group copies it."""
    with patch.object(TransfersTable, "is_held", TransfersTable.is_on_its_way):
        yield


@contextmanager
def compact_on_the_way() -> Iterator[None]:
    """The old group goes on compacting what the new one copies."""

    def compact(state: State, command: Any) -> Any:
        return apply_order(state.partitions.by_number[command.partition], command)

    with patch.dict(machine.CHANGES, {CompactCommand: compact}):
        yield


@contextmanager
def say_that_all_is_here() -> Iterator[None]:
    """What a replica lacks is rounded away."""
    with patch.object(catching_up.History, "percent", 100):
        yield


_WORLDS = "tests/placement/test_passing.py::test_partitions_pass_with_all_that_is_known_of_them"
_IN = "tests/placement/test_passing.py::"
_SEGMENTS = "test_a_compacted_partition_takes_its_segments_along"
_TOO_LONG = "test_a_move_ends_that_keeps_a_partition_from_being_compacted_for_too_long"
_OPEN = "test_a_partition_with_an_open_transaction_is_not_sealed"
_LEFTOVERS = "tests/sequencer/test_leftovers.py::test_files_of_unknown_groups_are_kept_and_shown"
_PHASES = "tests/sequencer/test_catching_up.py::test_phases_come_in_order"
_HISTORY = "tests/archiver/test_history.py::test_it_goes_along_to_another_group"
_TABLES = "tests/sequencer/test_partition_tables.py::"
_LATE = "tests/placement/test_passing.py::test_steps_that_come_late_change_nothing"
_RUNS = "tests/placement/test_passing.py::test_a_run_goes_on_where_its_partition_is"
_LEFT = "tests/placement/test_passing.py::test_what_left_is_not_opened_by_an_old_table"
_SIMULATED = "tests/placement/test_simulation.py::test_worlds_keep_their_promises"
_COMES = "tests/sequencer/test_repair.py::test_what_comes_from_another_group_is_not_given_up"

PASSING = (
    ("placement.6", merge_behind_the_seal, _WORLDS),
    ("placement.6", open_with_less, _WORLDS),
    ("placement.6", seal_what_is_forbidden, _LATE),
    ("placement.6", copy_what_was_given_up, _LATE),
    ("placement.6", obey_older_tasks, _LATE),
    ("placement.6", leave_what_was_copied, _WORLDS),
    ("placement.6", open_again_what_left, _LEFT),
    ("placement.7", forget_the_inputs, _WORLDS),
    ("placement.7", forget_the_batches, _WORLDS),
    ("placement.7", forget_the_epochs, _WORLDS),
    ("placement.7", forget_the_schemas, _IN + "test_schemas_come_along"),
    ("placement.7", number_targets_as_before, _HISTORY),
    ("placement.7", seal_what_is_staged, _IN + "test_what_is_staged_is_not_sealed"),
    ("placement.7", seal_within_a_transaction, _IN + _OPEN),
    ("placement.22", seal_what_is_not_held, _IN + "test_what_is_not_held_is_not_sealed"),
    ("placement.22", copy_what_is_not_held, _SIMULATED),
    ("placement.22", compact_on_the_way, _IN + "test_nothing_is_compacted_on_its_way"),
    ("placement.22", compact_what_is_held, _IN + "test_nothing_is_compacted_on_its_way"),
    ("placement.22", carry_no_generations, _IN + _SEGMENTS),
    ("placement.22", pause_for_ever, _IN + _TOO_LONG),
    ("placement.7", end_runs_for_good, _RUNS),
    ("placement.7", begin_runs_twice, _RUNS),
    ("placement.7", void_what_is_coming, _COMES),
    ("raft.12", ask_too_early, _IN + "test_a_group_that_has_just_been_made_is_asked_again"),
    ("placement.8", remove_unknown_groups, _LEFTOVERS),
    ("placement.8", say_that_all_is_here, _PHASES),
    ("placement.19", leave_a_table_out, _TABLES + "test_every_table_of_the_state_is_told"),
)
"""Rule, bug, and the test that finds it."""
