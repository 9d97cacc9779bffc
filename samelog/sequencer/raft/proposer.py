"""Proposing from any node: locally when it leads, else through the leader, until the outcome is
known.

Commands proposed here are idempotent, so a proposal whose fate is unknown (leadership moved) is
simply repeated. The outcome is the one of this node's own state machine: by the time it is
returned, the command is applied here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from samelog.consensus import Busy, NotLeader
from samelog.runtime.clock import Clock
from samelog.runtime.loop import spawn
from samelog.sequencer.levels import LOWEST
from samelog.sequencer.raft.group import ProposalLost, RaftGroup
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.state.commands import (
    AnyCommand,
    CommandError,
    decode_commands,
    encode_commands,
)
from samelog.sequencer.state.types import Rejection
from samelog.wire.peer_messages import Forward, Forwarded

PROPOSE_TIMEOUT_S = 10.0
ATTEMPT_TIMEOUT_S = 2.0
RETRY_S = 0.05


class Proposer:
    """Gets single commands committed."""

    def __init__(
        self,
        group: RaftGroup,
        replica: Replica,
        clock: Clock,
        send: Callable[[int, Forward | Forwarded], bool],
    ) -> None:
        self.clock = clock
        self._group = group
        self._replica = replica
        self._send = send
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Forwarded]] = {}
        self._behind: list[asyncio.Future[None]] = []
        """Who waits for the next round of `catch_up`."""
        self._catches_up = False

    async def propose(self, command: AnyCommand, *, longer_s: float = 0.0) -> Any:
        """The command's outcome, applied here. Raises TimeoutError when no leader answers, or the
        command has not been carried out `longer_s` later.
        """
        if (refusal := self._too_early(command)) is not None:
            return refusal
        async with asyncio.timeout(PROPOSE_TIMEOUT_S + longer_s):
            while True:
                try:
                    return await self._attempt(command)
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

    def _too_early(self, command: AnyCommand) -> Rejection | None:
        """Nothing is proposed before all members know what it is."""
        if command.needs <= LOWEST or command.needs <= (level := self._replica.level):
            return None
        text = f"it needs feature level {command.needs}, the cluster has {level}: docs/upgrades.md"
        return Rejection("LEVEL_TOO_LOW", text)

    async def _attempt(self, command: AnyCommand) -> Any:
        if self._group.is_leader:
            _, future = self._group.ask([command])
            return (await future)[0]
        leader = self._group.raft.leader
        if leader is None or leader == self._group.raft.node_id:
            raise NotLeader(None)  # nobody leads, or this node does not yet: its no-op is under way
        return await self._forward(leader, command)

    async def _forward(self, leader: int, command: AnyCommand) -> Any:
        request = next(self._ids)
        future: asyncio.Future[Forwarded] = asyncio.get_running_loop().create_future()
        self._asked[request] = future
        try:
            if not self._send(leader, Forward(request, encode_commands([command]))):
                raise NotLeader(None)
            async with asyncio.timeout(ATTEMPT_TIMEOUT_S):
                answer = await future
                if answer.index is None:
                    raise NotLeader(None)
                await self._replica.wait_applied(answer.index)
        finally:
            del self._asked[request]
        return True if answer.code == "" else Rejection(answer.code, answer.message)

    # --- as asked by and answered to peers --------------------------------------------------------

    def answered(self, message: Forwarded) -> None:
        """The leader's answer to one of our requests."""
        future = self._asked.get(message.id)
        if future is not None and not future.done():
            future.set_result(message)

    async def serve(self, node: int, message: Forward) -> None:
        """Propose for a peer, and tell it where the command stands in the log."""
        self._send(node, await self._served(message))

    async def _served(self, message: Forward) -> Forwarded:
        try:
            command = decode_commands(message.command)[0]
            if not self._group.is_leader:
                return Forwarded(message.id, None)
            if (refusal := self._too_early(command)) is not None:
                return Forwarded(message.id, 0, refusal.code, refusal.message)
            async with asyncio.timeout(ATTEMPT_TIMEOUT_S):
                index, future = self._group.ask([command])
                outcome = (await future)[0]
        except (NotLeader, ProposalLost, Busy, TimeoutError):
            return Forwarded(message.id, None)
        except (CommandError, IndexError) as error:
            text = f"the leader does not know this command: {error}"
            return Forwarded(message.id, 0, "UNSUPPORTED", text)
        refusal = outcome if isinstance(outcome, Rejection) else Rejection("", "")
        return Forwarded(message.id, index, refusal.code, refusal.message)
