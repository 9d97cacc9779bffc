"""Consumer groups of a replay: they belong to the listener, and end with it.

The coordinator is that of nodes. What it decides would be an entry of Raft there; here it is
applied at once, to a state that nobody else has.

Invariant: nothing of a replay reaches the groups of the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.machine import StateMachine


@dataclass(frozen=True, slots=True)
class OneTerm:
    """Of a group that has one member for ever."""

    term: int = 1


@dataclass(slots=True)
class GroupOfOne:
    """Implements groups.driver.DecidingGroup and AppliedState."""

    machine: StateMachine
    raft: OneTerm = field(default_factory=OneTerm)
    is_leader: bool = True

    def ask(self, commands: Sequence[AnyCommand]) -> tuple[int, asyncio.Future[list[Any]]]:
        """Have commands carried out: they are."""
        done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        done.set_result([self.machine.apply(command) for command in commands])
        return 0, done

    async def read_index(self) -> int | None:
        """What is applied is the newest there is."""
        return 0

    async def wait_applied(self, index: int) -> None:
        """It is."""


class LocalGroups:
    """What a group driver needs, of a replay. Implements groups.driver.Deciding."""

    def __init__(self, machine: StateMachine) -> None:
        self.group = self.replica = GroupOfOne(machine)
