"""This node's part in sites: it has the cluster note where it is, tells the others how far it is
behind, and hears how far they are.

How far behind a member is, only it knows: the append time of the oldest instruction that still
waits there for bytes, or for its entry. So the lag of a site is its members' own word, and is not
known while they say nothing.

Invariant: a node that is configured for a site that the cluster does not have is in none, and says
so; lag that is not known is never told as 0 (docs/sites.md, S20).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from samelog.runtime.clock import Clock
from samelog.sequencer.sites.agreeing import Agreement
from samelog.sequencer.sites.lags import SiteLags
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sites import SetSiteCommand
from samelog.wire.peer_messages import PeerMessage, SiteLag

SILENT_S = 2.0
"""A leader that says nothing for so long is not heard of."""


class Behind(Protocol):
    """What knows how far this node is behind."""

    @property
    def waits_since_ms(self) -> int | None:
        """The append time of the oldest instruction that waits for bytes here; None: none does."""

    @property
    def lacks(self) -> int:
        """How many records this node knows to be merged, and does not have."""


class AllBehind:
    """How far a node is behind in all groups of which it has replicas: group 0, and data groups."""

    def __init__(self, groups: Callable[[], Iterable[Behind]]) -> None:
        self._groups = groups

    @property
    def waits_since_ms(self) -> int | None:
        """See Behind."""
        found = (each.waits_since_ms for each in self._groups())
        return min((since for since in found if since is not None), default=None)

    @property
    def lacks(self) -> int:
        """See Behind."""
        return sum(each.lacks for each in self._groups())


class Whereabouts:
    """One node's."""

    def __init__(
        self,
        number: int,
        site: str,
        *,
        machine: StateMachine,
        propose: Callable[[SetSiteCommand], asyncio.Task[None]],
        behind: Behind,
        silent_s: Callable[[], float],
        clock: Clock,
        send_all: Callable[[PeerMessage], None],
    ) -> None:
        """`site`: by the node's configuration; empty: it is in none. `silent_s`: for how long the
        leader has been silent. What becomes of what is proposed the state says.
        """
        self.lags = SiteLags()
        self.agreement = Agreement()
        self._number = number
        self._site = site
        self._machine = machine
        self._propose = propose
        self._behind = behind
        self._silent_s = silent_s
        self._clock = clock
        self._send_all = send_all
        self._proposing: asyncio.Task[None] | None = None

    @property
    def trouble(self) -> str:
        """That the cluster has no such site; empty if it has, or none is configured."""
        sites = self._machine.state.placement.sites
        if not self._site or sites.members.get(self._number) == self._site:
            return ""
        known = ", ".join(sites.votes) or "none"
        if self._site not in sites.votes:
            return f"in no site: the cluster has no site {self._site!r} (it has: {known})"
        if not sites.votes[self._site] and self._votes:
            return f"in no site: site {self._site!r} only reads, and this node votes"
        return ""

    @property
    def _votes(self) -> bool:
        own = self._machine.state.members.by_number.get(self._number)
        return own is not None and own.voter

    def tick(self) -> None:
        """To be called about once a second."""
        sites = self._machine.state.placement.sites
        if not (sites.votes or sites.members):
            return
        noted = sites.members.get(self._number, "")
        if noted != self._site and not self.trouble and self._is_idle:
            self._proposing = self._propose(SetSiteCommand(self._number, self._site))
        if noted:
            told = SiteLag(self.waits_ms, self._behind.lacks)
            self.lags.say(self._number, told, self._clock.now())
            self._send_all(told)

    @property
    def waits_ms(self) -> int:
        """For how long the oldest record has waited that this node lacks; 0: it lacks none. What a
        leader that is silent has, nobody here knows: then it is the time of its silence.
        """
        since_ms = self._behind.waits_since_ms
        waits_ms = 0 if since_ms is None else max(0, self._clock.wall_ms() - since_ms)
        silent_s = self._silent_s()
        return max(waits_ms, int(1000 * silent_s) if silent_s > SILENT_S else 0)

    @property
    def _is_idle(self) -> bool:
        return self._proposing is None or self._proposing.done()
