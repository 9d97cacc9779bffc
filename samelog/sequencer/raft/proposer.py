"""Proposing from any node: locally when it leads, else through the leader, until the outcome is
known.

Commands proposed here are idempotent, so a proposal whose fate is unknown (leadership moved) is
simply repeated. The leader puts what is asked for in one turn of the event loop into one entry, as
far as that has room: thousands of sessions may open at once. The outcome is the one of this node's
own state machine: by the time it is returned, the command is applied here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, count
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from samelog.consensus import Busy, NotLeader
from samelog.runtime.clock import Clock
from samelog.runtime.loop import spawn
from samelog.sequencer.levels import LOWEST
from samelog.sequencer.raft.group import ProposalLost, RaftGroup
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import (
    AnyCommand,
    CommandError,
    decode_commands,
    encode_commands,
)
from samelog.sequencer.state.tables.placement import PlacePartitions, PlaceTopic
from samelog.sequencer.state.tables.topics import AddPartitions, CreateTopicCommand
from samelog.wire.frames import CONTROL_LIMIT_BYTES
from samelog.wire.peer_messages import CommandRefused, Forward, Forwarded

T = TypeVar("T")

PROPOSE_TIMEOUT_S = 10.0
BEGIN_S = 10.0
"""How long is waited for what all members of a new cluster support."""
ATTEMPT_TIMEOUT_S = 2.0
RETRY_S = 0.05
ENTRY_BYTES = 256 << 10
ENTRY_COMMANDS = 500
"""How much is proposed together: it is forwarded in one message, and answered in one."""
ENTRY_PARTITIONS = 1_000
"""New partitions of an entry, which every member applies in one turn of its loop, unless a single
topic has more.
"""
FORWARD_BYTES = CONTROL_LIMIT_BYTES - 1024

AnyForward = Forward | Forwarded


class _AskedCommands(NamedTuple):
    """Commands that were asked for together, and who waits for their entry and outcomes."""

    commands: Sequence[AnyCommand]
    answer: asyncio.Future[tuple[int, list[Any]]]


_COMMANDS: Callable[[_AskedCommands], Sequence[AnyCommand]] = attrgetter("commands")


class Proposer:
    """Gets commands committed."""

    def __init__(
        self,
        group: RaftGroup,
        replica: Replica,
        clock: Clock,
        send: Callable[[int, AnyForward], bool],
    ) -> None:
        self.clock = clock
        self._group = group
        self._replica = replica
        self._send = send
        self._ids = count(1)
        self._asked: dict[int, asyncio.Future[Forwarded]] = {}
        self._gathered: list[_AskedCommands] = []
        """For the next entries, at the end of this turn."""
        self._behind: list[asyncio.Future[None]] = []
        """Who waits for the next round of `catch_up`."""
        self._catches_up = False

    async def propose(self, command: AnyCommand, *, longer_s: float = 0.0) -> Any:
        """The command's outcome, applied here. Raises TimeoutError when no leader answers, or the
        command has not been carried out `longer_s` later.
        """
        return (await self._propose([command], longer_s))[0]

    async def propose_all(
        self, commands: Sequence[AnyCommand], *, longer_s: float = 0.0
    ) -> list[Any]:
        """The same for several: one entry takes as many as it has room for."""
        outcomes = []
        for together in in_entries(commands):
            outcomes += await self._propose(together, longer_s)
        return outcomes

    async def until_begun(self) -> None:
        """Wait until a new cluster has its feature level: nobody knows before what all its members
        understand. Raises TimeoutError.
        """
        replica = self._replica
        async with asyncio.timeout(BEGIN_S):
            while not replica.level:
                await replica.wait_applied(replica.applied_index + 1)

    async def _propose(self, commands: Sequence[AnyCommand], longer_s: float) -> list[Any]:
        if self._too_early(commands) is not None:
            with suppress(TimeoutError):
                await self.until_begun()
        if (refusal := self._too_early(commands)) is not None:
            return [refusal] * len(commands)
        async with asyncio.timeout(PROPOSE_TIMEOUT_S + longer_s):
            while True:
                try:
                    return await self._attempt(commands)
                except (NotLeader, ProposalLost, Busy, TimeoutError):
                    await asyncio.sleep(RETRY_S)

    async def catch_up(self) -> None:
        """Wait until what was committed before this call is applied here; those who ask together
        share one question to the cluster. Raises TimeoutError when no leader answers.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._behind.append(future)
        if not self._catches_up:
            self._catches_up = True
            spawn(self._catch_up_in_rounds(), "catch up")
        async with asyncio.timeout(PROPOSE_TIMEOUT_S):
            await future

    async def _catch_up_in_rounds(self) -> None:
        """Whoever asks during a round waits for the next one: this one may have begun too early."""
        try:
            while waiting := [future for future in self._behind if not future.done()]:
                self._behind = []
                index = await self._group.read_index()
                if index is None:
                    self._behind += waiting
                    await asyncio.sleep(RETRY_S)
                    continue
                await self._replica.wait_applied(index)
                for future in waiting:
                    if not future.done():
                        future.set_result(None)
        finally:
            self._catches_up = False

    def _too_early(self, commands: Sequence[AnyCommand]) -> Rejection | None:
        """Nothing is proposed before all members know what it is."""
        needs = max(command.needs for command in commands)
        if needs <= LOWEST or needs <= (level := self._replica.level):
            return None
        has = f"the cluster has {level}" if level else "this new one has none: a member is away"
        text = f"it needs feature level {needs}, {has}: docs/upgrades.md"
        return Rejection("LEVEL_TOO_LOW", text)

    @property
    def leads(self) -> bool:
        """Whether this node leads the group."""
        return self._group.is_leader

    @property
    def other_leader(self) -> int | None:
        """The member that leads the group, if it is another one."""
        raft = self._group.raft
        return None if raft.leader == raft.node_id else raft.leader

    async def _attempt(self, commands: Sequence[AnyCommand]) -> list[Any]:
        if self._group.is_leader:
            _, outcomes = await self._ask(commands)
            return outcomes
        leader = self.other_leader
        if leader is None:
            raise NotLeader(None)  # nobody leads, or this node does not yet: its no-op is under way
        return await self._forward(leader, commands)

    def _ask(self, commands: Sequence[AnyCommand]) -> asyncio.Future[tuple[int, list[Any]]]:
        """Propose commands, together with others: the index of their entry, and the outcomes."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[int, list[Any]]] = loop.create_future()
        if not self._gathered:
            loop.call_soon(self._propose_gathered)
        self._gathered.append(_AskedCommands(commands, answer))
        return answer

    def _propose_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        for together in _in_entries(gathered):
            try:
                index, outcomes = self._group.ask([*chain.from_iterable(map(_COMMANDS, together))])
            except Exception as error:  # noqa: BLE001 - it belongs to those who asked
                for each in together:
                    if not each.answer.done():
                        each.answer.set_exception(error)
            else:
                outcomes.add_done_callback(partial(_share, together, index))

    async def _forward(self, leader: int, commands: Sequence[AnyCommand]) -> list[Any]:
        data = encode_commands(commands)
        if len(data) > FORWARD_BYTES:
            text = f"{len(data)} bytes; at most {FORWARD_BYTES} may be asked for at once"
            return [Rejection("TOO_LARGE", text)] * len(commands)
        request = next(self._ids)
        future: asyncio.Future[Forwarded] = asyncio.get_running_loop().create_future()
        self._asked[request] = future
        try:
            if not self._send(leader, Forward(request, data)):
                raise NotLeader(None)
            async with asyncio.timeout(ATTEMPT_TIMEOUT_S):
                answer = await future
                if answer.index is None:
                    raise NotLeader(None)
                await self._replica.wait_applied(answer.index)
        finally:
            del self._asked[request]
        refused = answer.refused
        found = [Rejection(each.code, each.message) if each.code else True for each in refused]
        # A leader that cannot read them does not know how many they are.
        return found if len(found) == len(commands) else found[:1] * len(commands)

    def ask_for_entry(self) -> None:
        """Ask the leader for an entry that does nothing."""
        leader = self._group.raft.leader
        if leader is not None:
            self._send(leader, Forward(next(self._ids), encode_commands([])))

    # --- as asked by and answered to peers --------------------------------------------------------

    def answered(self, message: Forwarded) -> None:
        """The leader's answer to one of our requests."""
        future = self._asked.get(message.id)
        if future is not None and not future.done():
            future.set_result(message)

    async def serve(self, node: int, message: Forward) -> None:
        """Propose for a peer, and tell it where the commands stand in the log."""
        index, outcomes = await self._served(message.commands)
        self._send(node, Forwarded(message.id, index, tuple(map(_told, outcomes))))

    async def _served(self, data: bytes) -> tuple[int | None, list[Any]]:
        """The entry's index, None if there is none yet; and the outcomes."""
        try:
            commands = decode_commands(data)
            if not self._group.is_leader or (commands and self._too_early(commands)):
                # The asker may: a leader whose disk is slow applies later than its followers.
                return None, []
            async with asyncio.timeout(ATTEMPT_TIMEOUT_S):
                return await self._ask(commands)
        except (NotLeader, ProposalLost, Busy, TimeoutError):
            return None, []
        except CommandError as error:
            text = f"the leader does not know this command: {error}"
            return 0, [Rejection("UNSUPPORTED", text)]


def _told(outcome: Any) -> CommandRefused:
    if isinstance(outcome, Rejection):
        return CommandRefused(outcome.code, outcome.message)
    return CommandRefused()


def _share(
    together: Sequence[_AskedCommands], index: int, outcomes: asyncio.Future[list[Any]]
) -> None:
    """Give each the outcomes of its own commands."""
    error, at = outcomes.exception(), 0
    for commands, answer in together:
        if answer.done():
            pass
        elif error is None:
            answer.set_result((index, outcomes.result()[at : at + len(commands)]))
        else:
            answer.set_exception(error)
        at += len(commands)


def in_entries(commands: Sequence[AnyCommand]) -> Iterator[list[AnyCommand]]:
    """Commands in groups that one entry has room for, in order."""
    return _grouped((command, [command]) for command in commands)


def _in_entries(gathered: Sequence[_AskedCommands]) -> Iterable[list[_AskedCommands]]:
    if len(gathered) == 1:
        return ([*gathered],)
    return _grouped((each, each.commands) for each in gathered)


def _grouped(parts: Iterable[tuple[T, Sequence[AnyCommand]]]) -> Iterator[list[T]]:
    """Parts in groups whose commands one entry has room for, in order."""
    together: list[T] = []
    size = number = made = 0
    for part, commands in parts:
        own, makes = len(encode_commands(commands)), sum(map(_new_partitions, commands))
        is_full = size + own > ENTRY_BYTES or number + len(commands) > ENTRY_COMMANDS
        if together and (is_full or made + makes > ENTRY_PARTITIONS):
            yield together
            together, size, number, made = [], 0, 0, 0
        together.append(part)
        size, number, made = size + own, number + len(commands), made + makes
    if together:
        yield together


def _new_partitions(command: AnyCommand) -> int:
    if isinstance(command, PlacePartitions):
        return len(command.groups)
    if isinstance(command, CreateTopicCommand | PlaceTopic | AddPartitions):
        return command.partitions
    return 0
