"""Planted bugs in what keeps versions apart that run side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.sequencer.cluster.upgrade import Upgrade
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.state import machine
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.tables.members import RaiseLevel
from samelog.sequencer.state.types import State
from tests.cluster_sim.new_kind import NEW_BUILD
from tests.cluster_sim.node import Recorder


@contextmanager
def use_what_only_some_know() -> Iterator[None]:
    """A kind of entry is proposed as soon as the node that wants it knows it."""
    with (
        patch.object(Proposer, "_too_early", lambda self, command: None),
        patch.object(Recorder, "level", NEW_BUILD),
    ):
        yield


@contextmanager
def finalize_by_a_majority() -> Iterator[None]:
    """The feature level is raised once a majority of the members supports the new one."""

    def raise_level(state: State, command: RaiseLevel) -> WhyNot:
        support = [life for life in state.members.started.values() if life.level >= command.level]
        if state.members.level != command.since or 2 * len(support) <= len(state.members.by_number):
            return "LEVEL_UNSUPPORTED", "no majority"
        state.members.level = command.level
        return None

    def obstacle(self: Upgrade, number: int, level: int, wanted: int) -> str:
        return ""

    changes: Any = {RaiseLevel: raise_level}
    with (
        patch.object(Upgrade, "_obstacle", obstacle),
        patch.dict(machine.CHANGES, changes),
    ):
        yield


UPGRADES = (use_what_only_some_know, finalize_by_a_majority)
