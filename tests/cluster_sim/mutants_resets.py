"""Planted bugs in resets of the whole cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.sequencer.state import machine
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.resets import HardReset
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units import resets


@contextmanager
def begin_anew_under_the_old_id() -> Iterator[None]:
    """A log that a hard reset restarted has the id of the old one."""
    with patch.object(resets, "log_id", lambda topic_id, reset_id: topic_id):
        yield


@contextmanager
def merge_again_after_resets() -> Iterator[None]:
    """A hard reset forgets how far sessions were merged."""
    original = machine.APPLY[HardReset]

    def hard_reset(state: State, command: HardReset) -> Any:
        outcome = original(state, command)
        for entry in () if isinstance(outcome, Rejection) else state.sessions.inputs.values():
            entry.roll = entry.byte = 0
        return outcome

    with patch.dict(machine.APPLY, {HardReset: hard_reset}):
        yield


@contextmanager
def epochs_do_not_rise() -> Iterator[None]:
    """A hard reset leaves the leader epoch as it is."""
    with patch.object(resets, "EPOCH_STEP", 0):
        yield


RESETS = (begin_anew_under_the_old_id, merge_again_after_resets, epochs_do_not_rise)
