"""The connections that this node dials to the other members, as members come and go: to each a
control connection and, when there is something for it, a bulk one.

Invariant: there is one link to every other member that this node knows of, and none to anybody
else; a message to nobody is dropped, as to a peer that is away, and so is one that some member may
not know.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from samelog.replicator.pull.repair_pull import RepairPull
from samelog.runtime.backoff import Backoff
from samelog.runtime.clock import Clock
from samelog.runtime.network.link import PeerPlace
from samelog.runtime.network.tls import ReloadingContext
from samelog.sequencer.cluster.peers import PeerLink, PeerListener
from samelog.sequencer.levels import LOWEST
from samelog.wire.messages import Hello
from samelog.wire.peer_messages import MemberList, PeerMessage

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Links:
    """All links of one node. Implements peers.PeerSender and peer_pulls.PeerPulls."""

    def __init__(
        self,
        hello: Callable[[int], Hello],
        tls: ReloadingContext,
        listener: PeerListener,
        rng: random.Random,
        clock: Clock,
        *,
        told: Callable[[], MemberList],
        level: Callable[[], int],
    ) -> None:
        """`hello`: the introduction to a member; `told`: the member list as it is known;
        `level`: the cluster's feature level.
        """
        self.open: dict[int, PeerLink] = {}
        self._hello = hello
        self._told = told
        self._tls = tls
        self._listener = listener
        self._rng = rng
        self._clock = clock
        self._level = level
        self._spawn: Spawn | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, spawn: Spawn) -> None:
        """Dial, from now on."""
        self._spawn = spawn
        for number in self.open:
            self._dial(number)

    def follow(self, wanted: Mapping[int, PeerPlace]) -> None:
        """These are the other members now."""
        for number, link in list(self.open.items()):
            if wanted.get(number) is not link.peer:
                self._drop(number)
        for number, peer in wanted.items():
            if number not in self.open:
                self.open[number] = self._link(number, peer)
                self._dial(number)

    def _link(self, number: int, peer: PeerPlace) -> PeerLink:
        return PeerLink(
            number,
            peer,
            partial(self._hello, number),
            self._told,
            self._listener,
            tls=self._tls,
            backoff=Backoff(self._rng),
            clock=self._clock,
        )

    def _dial(self, number: int) -> None:
        if self._spawn is not None:
            self._tasks[number] = self._spawn(self.open[number].run())

    def _drop(self, number: int) -> None:
        self.open.pop(number).bulk.close()
        task = self._tasks.pop(number, None)
        if task is not None:
            task.cancel()

    def get(self, number: int) -> RepairPull | None:
        """The bulk connection to a member; None if it is none any more."""
        link = self.open.get(number)
        return None if link is None else link.bulk

    def name(self, number: int) -> str:
        """The name of a member."""
        return self.open[number].peer.name

    def send_raft(
        self, group: int, to: int, messages: Sequence[Any], replicas: tuple[int, int] = (0, 0)
    ) -> None:
        """Send Raft messages of a group, or drop them. `replicas`: whose they are, and for whom."""
        link = self.open.get(to)
        if link is not None:
            link.send_raft(group, messages, replicas)

    def send(self, to: int, message: PeerMessage) -> bool:
        """Send a message; False if it was dropped."""
        link = self.open.get(to)
        if link is None or (message.needs > LOWEST and message.needs > self._level()):
            return False
        return link.send(message)

    def is_there(self, number: int) -> None:
        """A peer was seen just now: dial it, if there is no connection to it."""
        if number in self.open:
            self.open[number].is_there()

    @property
    def numbers(self) -> list[int]:
        """The peers that are dialled."""
        return list(self.open)

    @property
    def connected(self) -> list[int]:
        """The peers that have accepted this node's connection."""
        return [number for number, link in self.open.items() if link.connected]

    def send_all(self, message: PeerMessage) -> None:
        """Send a message to every peer that is there."""
        for number in self.open:
            self.send(number, message)
