"""Limits of each identity, so that one publisher cannot starve the others or fill a node
(invariants.md, rule 30).

Bytes are counted between recounts, which subtract what was merged. Peers' copies are
not capped here: they are what lets a backlog be merged.

Invariant: what was accepted counts until it is merged; a refusal is answered, and may be retried.
"""

from __future__ import annotations

from collections import Counter

from samelog.config.tables.node import Quotas
from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.state.machine import StateMachine
from samelog.wire.errors import FaultCode

REMEDY = "let it be merged, or have an administrator raise [quotas] in the nodes' configuration"
UNMERGED_SHARE = 4
"""Of the disk, where no number of bytes is configured: one part in so many for each identity."""


class QuotaKeeper:
    """What each identity uses at this node, and its limits."""

    def __init__(self, machine: StateMachine, sessions: SessionStore, quotas: Quotas) -> None:
        self._machine = machine
        self._sessions = sessions
        self._quotas = quotas
        self._unmerged: Counter[str] = Counter()
        self._unmerged_limit = quotas.unmerged_bytes

    def limit(self, quotas: Quotas) -> None:
        """Replace the quotas; a share of the disk counts from the next recount on."""
        self._quotas = quotas
        self._unmerged_limit = quotas.unmerged_bytes

    def recount(self, disk_bytes: int) -> int:
        """Count the bytes that are held and not merged anew, for a disk of this size. Returns their
        sum.
        """
        self._unmerged_limit = self._quotas.unmerged_bytes or disk_bytes // UNMERGED_SHARE
        self._count()
        return self._unmerged.total()

    def _count(self) -> None:
        self._unmerged.clear()
        for entry in self._machine.state.inputs.values():
            identity = self._machine.state.sessions[entry.session].identity
            self._unmerged[identity] += self._sessions.unmerged_bytes(entry)

    def accept(self, session: str, size: int) -> None:
        """Count bytes of a publisher. Raises RequestRefused if they exceed its quota."""
        identity = self._machine.state.sessions[session].identity
        limit = self._unmerged_limit
        if limit and self._unmerged[identity] + size > limit:
            self._count()  # some of it may be merged by now
            held = self._unmerged[identity]
            if held + size > limit:
                raise _too_many(identity, f"{held} bytes that are not merged, of at most {limit}")
        self._unmerged[identity] += size

    def check_session(self, identity: str, session: str) -> None:
        """Whether the identity may begin a session of that name. Raises RequestRefused."""
        sessions = self._machine.state.sessions
        if session in sessions and sessions[session].runs:
            return
        count = sum(known.identity == identity and bool(known.runs) for known in sessions.values())
        if count >= self._quotas.sessions:
            raise _too_many(identity, f"{count} sessions, of at most {self._quotas.sessions}")

    def check_partition(self, session: str) -> None:
        """Whether the session's identity may begin to publish to another. Raises RequestRefused."""
        sessions = self._machine.state.sessions
        known = sessions.get(session)
        if known is None:
            return
        own = {name for name, other in sessions.items() if other.identity == known.identity}
        count = sum(entry.session in own for entry in self._machine.state.inputs.values())
        if count >= self._quotas.partitions:
            text = f"{count} partitions in its sessions, of at most {self._quotas.partitions}"
            raise _too_many(known.identity, text)


def _too_many(identity: str, what: str) -> RequestRefused:
    return RequestRefused(FaultCode.TOO_MANY, f"{identity} has {what}", REMEDY)
