"""Watches that a command which is rejected changes nothing (rule placement.19)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import count
from typing import Any
from unittest.mock import patch

from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.machine import StateMachine

EVERY = 4
"""Encoding the state before each command would take a tenth of a world's time."""


class RejectedChange(AssertionError):
    """A command was rejected, and has changed the state."""


def watched() -> AbstractContextManager[Any]:
    """Compare the state before and behind one of `EVERY` commands."""
    original, numbers = StateMachine.apply, count()

    def apply(self: StateMachine, command: AnyCommand) -> Any:
        if next(numbers) % EVERY:
            return original(self, command)
        before = self.encode()
        outcome = original(self, command)
        if isinstance(outcome, Rejection) and self.encode() != before:
            changed = ", ".join(_changed(StateMachine.decode(before), self))
            raise RejectedChange(f"{command} was rejected ({outcome.code}) and changed {changed}")
        return outcome

    return patch.object(StateMachine, "apply", apply)


def _changed(before: StateMachine, behind: StateMachine) -> Iterator[str]:
    for name in before.state.__struct_fields__:
        if getattr(before.state, name) != getattr(behind.state, name):
            yield name
