"""Planted bugs in the way of a partition from group to group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from samelog.placement.tasks import Action
from samelog.placement.values import PassStage, Placement
from samelog.sequencer.cluster.repair.merged import MergedRepair
from samelog.sequencer.data_groups.passing import PartitionPasses
from samelog.sequencer.state.placement import changes, passing
from samelog.sequencer.state.placement.commands import OpenPartition, PassPartition
from samelog.sequencer.state.types import State


@contextmanager
def merge_behind_the_seal() -> Iterator[None]:
    """A partition that is on its way takes records in both groups."""
    with patch.object(Placement, "is_on_its_way", lambda self, partition: False):
        yield


@contextmanager
def forget_the_inputs() -> Iterator[None]:
    """The new group does not learn how far sessions are merged."""
    with patch.object(passing, "_take_up_input", lambda *_: None):
        yield


@contextmanager
def forget_the_batches() -> Iterator[None]:
    """The new group does not learn which batches and ids were merged."""
    with patch.object(passing, "_take_up_knowledge", lambda *_: None):
        yield


@contextmanager
def forget_the_epochs() -> Iterator[None]:
    """Leader epochs of a partition begin with the terms of its new group."""
    with patch.object(passing, "EPOCHS_PER_MOVE", 0):
        yield


@contextmanager
def end_runs_for_good() -> Iterator[None]:
    """A run that has ended in the new group takes no input that comes later."""
    original = passing._run_here

    def run_here(state: State, carried: Any) -> Any:
        run = original(state, carried)
        return None if run is not None and run.closed and not carried.run.closed else run

    with patch.object(passing, "_run_here", run_here):
        yield


@contextmanager
def begin_runs_twice() -> Iterator[None]:
    """A partition is opened though an older run of one of its sessions is open in the new group."""
    with patch.object(passing, "_newest_run", lambda state, session: None):
        yield


@contextmanager
def seal_what_is_forbidden() -> Iterator[None]:
    """An order to seal that comes late is obeyed, though its task was cancelled."""
    original = passing._seal

    def seal(state: State, command: PassPartition) -> Any:
        if state.placement.pass_of(command.task) is PassStage.FORBIDDEN:
            state.placement.passing = None
        return original(state, command)

    with patch.dict(passing._STEPS, {Action.SEAL_PARTITION: seal}):
        yield


@contextmanager
def copy_what_was_given_up() -> Iterator[None]:
    """An order to copy that comes late begins anew what was undone."""
    original = passing._copy

    def copy(state: State, command: PassPartition) -> Any:
        if state.placement.pass_of(command.task) is PassStage.GONE:
            state.placement.passing = None
        return original(state, command)

    with patch.dict(passing._STEPS, {Action.COPY_PARTITION: copy}):
        yield


@contextmanager
def obey_older_tasks() -> Iterator[None]:
    """A step counts, whatever newer task its group has heard of."""

    def pass_partition(state: State, command: PassPartition) -> Any:
        return passing._STEPS[command.action](state, command)

    with patch("samelog.sequencer.state.machine.pass_partition", pass_partition):
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

    with patch.dict(changes.PLACEMENT_CHANGES, {OpenPartition: open_partition}):
        yield


@contextmanager
def leave_what_was_copied() -> Iterator[None]:
    """A cancelled move is over while the new group has files of it."""
    original = _moved_by()

    def moved_by(task: Any, said: Any) -> Any:
        return replace(original(task, said), has_files=False)

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


_WORLDS = "tests/placement/test_passing.py::test_partitions_pass_with_all_that_is_known_of_them"
_LATE = "tests/placement/test_passing.py::test_steps_that_come_late_change_nothing"
_RUNS = "tests/placement/test_passing.py::test_a_run_goes_on_where_its_partition_is"
_LEFT = "tests/placement/test_passing.py::test_what_left_is_not_opened_by_an_old_table"
_COMES = "tests/sequencer/test_repair.py::test_what_comes_from_another_group_is_not_given_up"

PASSING = (
    (135, merge_behind_the_seal, _WORLDS),
    (135, open_with_less, _WORLDS),
    (135, seal_what_is_forbidden, _LATE),
    (135, copy_what_was_given_up, _LATE),
    (135, obey_older_tasks, _LATE),
    (135, leave_what_was_copied, _WORLDS),
    (135, open_again_what_left, _LEFT),
    (136, forget_the_inputs, _WORLDS),
    (136, forget_the_batches, _WORLDS),
    (136, forget_the_epochs, _WORLDS),
    (136, end_runs_for_good, _RUNS),
    (136, begin_runs_twice, _RUNS),
    (136, void_what_is_coming, _COMES),
)
"""Rule, bug, and the test that finds it."""
