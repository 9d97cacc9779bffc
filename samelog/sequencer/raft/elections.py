"""Elections in the log, one line each: who stands or leads, in which term, and why.

A cluster that changes its leader often has a reason, which is gone when somebody looks. So each
node says what it saw, when it saw it: a connection that broke, a silent leader, an order to take
over.

Invariant: nothing here decides; candidates that ask for pre-votes in vain raise no term, and are
not told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from samelog.consensus import Raft, Role
from samelog.runtime.log import log_event

log = logging.getLogger(__name__)

FIRST = "no leader was known since the start"
SILENT = "the leader was silent for too long"
HANDED = "the leader handed leadership over"
OTHER = "another node stood"


KEPT = 100
"""Of the newest elections."""


class SeenElection(NamedTuple):
    """A leader that was elected, when it was seen, and why as far as that was seen."""

    at_ms: int
    term: int
    leader: int
    why: str


class ElectionLog:
    """What one node sees of its group's elections."""

    def __init__(self, raft: Raft, group: int, wall_ms: Callable[[], int]) -> None:
        """`group`: its number, for the log; 0 is that of the metadata."""
        self._raft, self._group = raft, group
        self._wall_ms = wall_ms
        self.newest: tuple[SeenElection, ...] = ()
        self.count = 0
        """Leaders seen elected."""
        self._leader: tuple[int, int] | None = None
        """(term, number) of the newest one."""
        self._role = raft.role
        self._stood_in = raft.term
        self._lost: str | None = None
        """Why this node has no leader any more, if it saw why."""

    def lost_connection(self) -> None:
        """The connection to the leader broke."""
        if self._leader is not None:
            self._lost = f"the connection to {self._leader[1]}, which led, broke"

    def note(self) -> None:
        """The role, the term or the leader of this node changed."""
        raft = self._raft
        before, self._role = self._role, raft.role
        if raft.role is Role.PRE_CANDIDATE:
            self._lost = self._lost or self._or_first(SILENT)
        if raft.role in (Role.CANDIDATE, Role.LEADER) and raft.term > self._stood_in:
            is_handed = before is Role.FOLLOWER and len(raft.voters) > 1
            self._stood(HANDED if is_handed else FIRST)
        if raft.leader is not None and self._leader != (raft.term, raft.leader):
            self._elected(raft.leader)

    def _or_first(self, why: str) -> str:
        return why if self._leader is not None else FIRST

    def _stood(self, why: str) -> None:
        self._stood_in, self._lost = self._raft.term, self._lost or why
        term = self._raft.term
        facts = {"group": self._group, "term": term, "why": self._lost}
        log_event(log, logging.INFO, "stands for election", **facts)

    def _elected(self, leader: int) -> None:
        why, term = self._lost or self._or_first(OTHER), self._raft.term
        self._leader, self._lost = (term, leader), None
        self.count += 1
        seen = SeenElection(self._wall_ms(), term, leader, why)
        self.newest = (*self.newest[1 - KEPT :], seen)
        facts = {"group": self._group, "leader": leader, "term": term, "why": why}
        log_event(log, logging.INFO, "a leader is elected", **facts)
