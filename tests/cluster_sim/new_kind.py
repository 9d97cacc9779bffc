"""A kind of command that a newer build brings, and older builds, which do not know it.

Invariant: an older build refuses an entry with what it does not know just as the decoder does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import ClassVar
from unittest.mock import patch

import msgspec

from samelog.sequencer.levels import SUPPORTED
from samelog.sequencer.state import commands, machine
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.commands import AnyCommand, CommandError, decode_commands
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.types import State

OLD_BUILD = SUPPORTED
NEW_BUILD = SUPPORTED + 1


class NewKind(Command, frozen=True, tag=1000):
    """Leaves an event."""

    needs: ClassVar[int] = NEW_BUILD
    text: str


def _apply(state: State, command: NewKind) -> NewKind:
    state.events.remember(RecordEvent(0, "new kind", command.text))
    return command


@contextmanager
def known() -> Iterator[None]:
    """Both builds are in this process, so it knows the newer one's kinds."""
    decoder = msgspec.msgpack.Decoder(list[AnyCommand | NewKind])
    with ExitStack() as stack:
        stack.enter_context(patch.object(commands, "_decoder", decoder))
        stack.enter_context(patch.dict(machine.APPLY, {NewKind: _apply}))
        yield


def check_known(data: bytes, build: int) -> None:
    """Raises CommandError if a build does not know what is in an entry."""
    for each in decode_commands(data) if build < NEW_BUILD else ():
        if each.needs > build:
            raise CommandError(f"unreadable Raft entry: build {build} has no {type(each).__name__}")
