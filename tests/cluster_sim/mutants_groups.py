"""Planted bugs in what each data group promises of its own logs, whatever group 0 does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.state import machine
from samelog.sequencer.state.tables.placement import BeginAnew
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units import resets

_begin = resets.begin_group_anew


@contextmanager
def merge_again_in_groups() -> Iterator[None]:
    """A data group that restarts its logs forgets how far sessions were merged."""

    def begin(state: State, command: BeginAnew) -> Any:
        problem = _begin(state, command)
        for entry in state.sessions.inputs.values() if problem is None else ():
            entry.roll = entry.byte = 0
        return problem

    with patch.dict(machine.CHANGES, {BeginAnew: begin}):
        yield


@contextmanager
def epochs_of_groups_do_not_rise() -> Iterator[None]:
    """The logs that a data group restarts have the leader epochs of the old ones."""

    def begin(state: State, command: BeginAnew) -> Any:
        problem = _begin(state, command)
        for number in state.epochs.by_partition:
            state.epochs.by_partition[number] = 0
        return problem

    with patch.dict(machine.CHANGES, {BeginAnew: begin}):
        yield


@contextmanager
def release_what_one_of_a_group_has_merged() -> Iterator[None]:
    """One member of a data group that has merged bytes durably is enough to let go of them."""
    original = Coordinator.majority_merged

    def merged(self: Coordinator, partitions: Iterable[int]) -> dict[int, int]:
        if not self._machine.state.placement.own:
            return original(self, partitions)
        views = self._voting_views()
        return {
            number: max((view.merged_durable.get(number, 0) for view in views), default=0)
            for number in partitions
        }

    with patch.object(Coordinator, "majority_merged", merged):
        yield


GROUPS = (
    merge_again_in_groups,
    epochs_of_groups_do_not_rise,
    release_what_one_of_a_group_has_merged,
)
