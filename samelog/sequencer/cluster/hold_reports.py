"""Reports to the other members what the publishers that are connected to this node hold.

Invariant: a connected member has the newest report of each session, or gets it within a second of
having room for it (rule sessions.51).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from samelog.sequencer.cluster.peers import PeerSender
from samelog.wire.holds import HeldPart
from samelog.wire.peer_messages import HoldsTold


class HoldReports:
    """One node's reports."""

    def __init__(self, peers: PeerSender, holds: Callable[[str], tuple[HeldPart, ...]]) -> None:
        """`holds` returns what a session's publisher holds; nothing without a connection."""
        self._peers = peers
        self._holds = holds
        self._untold: dict[int, dict[str, None]] = {}
        """Sessions whose newest report was dropped, by connected member."""

    def changed(self, session: str) -> None:
        """Report to all connected members what a session's publisher holds now."""
        for member in self._peers.connected:
            self._report(member, session)

    def welcomed(self, member: int, sessions: Iterable[str]) -> None:
        """Report all sessions to a member that has just accepted this node's connection."""
        self._untold.pop(member, None)
        for session in sessions:
            self._report(member, session)

    def repeat(self) -> None:
        """Repeat the reports that were dropped. To be called about once a second."""
        connected = self._peers.connected
        for member, sessions in list(self._untold.items()):
            if member not in connected:  # it gets all when it is welcomed
                del self._untold[member]
                continue
            for session in list(sessions):
                self._report(member, session)

    def _report(self, member: int, session: str) -> None:
        untold = self._untold.get(member, {})
        if self._peers.send(member, HoldsTold(session, self._holds(session))):
            untold.pop(session, None)
            if not untold:
                self._untold.pop(member, None)
        else:
            untold[session] = None
            self._untold[member] = untold
