"""What all sessions that a process ships have in common: one connection to each node, for those
with the same cluster and credentials, and one clock.

A session at rest costs nothing until an event wakes it, except for a rare check of its directory,
because inotify can miss changes.

Invariant: a connection lasts as long as a session uses it; an error in the check of one session
delays no other one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from random import Random
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

from samelog.config.tables.shared import TlsFiles
from samelog.replicator.push.node_connection import NodeConnection, SharingSession
from samelog.runtime.backoff import Backoff
from samelog.runtime.clock import Clock
from samelog.runtime.errors import TlsFault
from samelog.runtime.loop import spawn
from samelog.runtime.network.link import NodeAddress
from samelog.runtime.network.tls import ReloadingContext

log = logging.getLogger(__name__)

POLL_S = 1.0
BLIND_POLL_S = 0.05
"""Of sessions without inotify."""
POLLS_PER_LOOK = 60
"""A session at rest is checked in one poll of so many."""


class LookedAt(Protocol):
    """A session that is shipped."""

    @property
    def is_blind(self) -> bool:
        """Whether changes of its directory are noticed by looking only."""

    @property
    def is_at_rest(self) -> bool:
        """Whether there is nothing that time alone changes."""

    def look(self, *, is_whole: bool) -> None:
        """Do what is due. `is_whole`: poll the directory although no event says that it changed."""


class _ConnectionKey(NamedTuple):
    """Those with the same one share a connection."""

    cluster: str
    tls: ReloadingContext
    target: NodeAddress


class PushConnections:
    """Of one event loop. To be used in it only."""

    def __init__(self, clock: Clock, random: Random, *, poll_s: float = POLL_S) -> None:
        self.clock = clock
        self.random = random
        self._poll_s = poll_s
        self._nodes: dict[_ConnectionKey, NodeConnection] = {}
        self._contexts = WeakValueDictionary[TlsFiles, ReloadingContext]()
        self._sessions: dict[LookedAt, None] = {}
        """All sessions, the one with the oldest check first."""
        self._awake: dict[LookedAt, None] = {}
        self._looks_due = 0.0
        self._poller: asyncio.Task[None] | None = None

    # --- connections --------------------------------------------------------------------------

    def context(self, files: TlsFiles) -> ReloadingContext:
        """The context of these files, shared by all that use them. Raises TlsFault."""
        known = self._contexts.get(files)
        if known is None:
            known = self._contexts[files] = ReloadingContext(files)
        return known

    def join(
        self, session: SharingSession, target: NodeAddress, cluster: str, tls: ReloadingContext
    ) -> NodeConnection:
        """Ship a session to a node, on the connection that there is or on a new one."""
        key = _ConnectionKey(cluster, tls, target)
        known = self._nodes.get(key)
        if known is None:
            known = self._nodes[key] = NodeConnection(
                target,
                cluster,
                tls=tls,
                backoff=Backoff(self.random),
                clock=self.clock,
                on_reach=self._tell_reached,
            )
        known.join(session)
        return known

    def leave(self, session: SharingSession, used: NodeConnection) -> asyncio.Task[None] | None:
        """Ship it there no more. The task that ends the connection, if nothing else uses it."""
        used.leave(session)
        if used.sessions:
            return None
        self._nodes = {key: each for key, each in self._nodes.items() if each is not used}
        self._tell_reached()
        used.task.cancel()
        return used.task

    def _tell_reached(self) -> None:
        """Tell each node which others are reached, for it need not hurry to tell what their leader
        tells.
        """
        reached = defaultdict[tuple[str, ReloadingContext], set[int]](set)
        for key, node in self._nodes.items():
            if node.member is not None:
                reached[key.cluster, key.tls].add(node.member)
        for key, node in self._nodes.items():
            node.tell_reached(frozenset(reached[key.cluster, key.tls]))

    def reload(self) -> None:
        """Use the certificate files as they are now: connect again if they have changed, because
        the nodes judge each session by the certificate of its connection.
        """
        for tls in {key.tls for key in self._nodes}:
            try:
                is_changed = tls.reload_if_changed()
            except TlsFault as fault:
                log.warning(
                    "the certificate files have changed, the old ones stay in use: %s", fault
                )
                continue
            for key, each in self._nodes.items():
                if is_changed and key.tls is tls:
                    each.connect_again()

    # --- the clock ----------------------------------------------------------------------------

    def add(self, session: LookedAt) -> None:
        """Look at a session from now on."""
        self._sessions[session] = self._awake[session] = None
        if self._poller is None:
            self._poller = spawn(self._poll(), "push clock")

    def remove(self, session: LookedAt) -> None:
        """Look at it no more."""
        self._sessions.pop(session, None)
        self._awake.pop(session, None)
        if not self._sessions and self._poller is not None:
            self._poller.cancel()
            self._poller = None

    def wake(self, session: LookedAt) -> None:
        """Something has happened to a session: look at it until it rests."""
        if session in self._sessions:
            self._awake[session] = None

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._poll_s
        while True:
            blind = [each for each in self._sessions if each.is_blind]
            await asyncio.sleep(min(BLIND_POLL_S, self._poll_s) if blind else due - loop.time())
            await self._look_at(blind, is_whole=True)
            if loop.time() >= due:
                due = loop.time() + self._poll_s
                self.reload()
                whole = self._due_whole()
                await self._look_at(self._due_soon(), is_whole=False)
                await self._look_at(whole, is_whole=True)

    def _due_soon(self) -> list[LookedAt]:
        """Those that do not rest."""
        for session in [each for each in self._awake if each.is_at_rest]:
            del self._awake[session]
        return [*self._awake]

    def _due_whole(self) -> list[LookedAt]:
        """Some of all, in turn."""
        self._looks_due += len(self._sessions) / POLLS_PER_LOOK
        count = int(self._looks_due)
        self._looks_due -= count
        return [*islice(self._sessions, count)]

    async def _look_at(self, sessions: Iterable[LookedAt], *, is_whole: bool) -> None:
        loop = asyncio.get_running_loop()
        for session in sessions:
            if session not in self._sessions:
                continue
            if is_whole:
                self._sessions[session] = self._sessions.pop(session)
            try:
                session.look(is_whole=is_whole)
            except Exception as error:  # noqa: BLE001 - the seam: the other sessions go on
                text = "the check of a session failed"
                loop.call_exception_handler({"message": text, "exception": error})
            else:
                if session.is_at_rest:
                    self._awake.pop(session, None)
            await asyncio.sleep(0)
