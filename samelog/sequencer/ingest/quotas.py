"""Limits of each identity, so that one publisher cannot starve the others or fill a node
(rule operations.1).

Bytes are counted between recounts, which subtract what was merged. Peers' copies are
not capped here: they are what lets a backlog be merged.

Invariant: what was accepted counts until it is merged; a refusal is answered, and may be retried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from samelog.config.tables.node import Quotas
from samelog.format.nouns import counted
from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.merge.in_flight import MemberFlight
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import Input
from samelog.wire.errors import FaultCode

REMEDY = "let it be merged, or have an administrator raise [quotas] in the nodes' configuration"
END_OTHERS = (
    "close publishers that are not needed, or have an administrator raise [quotas] in the nodes' "
    "configuration"
)
UNMERGED_SHARE = 4
"""Of the disk, where no number of bytes is configured: one part in so many for each identity."""


class NodeQuotas:
    """What identities may use of a node, and what they hold there, in all its groups."""

    def __init__(self, quotas: Quotas, share: Callable[[int], int] = int) -> None:
        """`share`: what of so many bytes is this member's, of all on its host."""
        self._share = share
        self.unmerged: Counter[str] = Counter()
        self.pending_bytes = 0
        """Of what is to be written to merged logs, in all groups, as of lately."""
        self.in_flight = MemberFlight()
        self.limit(quotas)

    def limit(self, quotas: Quotas) -> None:
        """Replace the quotas; a share of the disk counts from the next recount on."""
        self.quotas = quotas
        self.unmerged_limit = self._share(quotas.unmerged_bytes)

    def measured(self, disk_bytes: int) -> None:
        """The disk is of this size."""
        self.unmerged_limit = self._share(
            self.quotas.unmerged_bytes or disk_bytes // UNMERGED_SHARE
        )


class QuotaKeeper:
    """What each identity uses of one replica, of what it may use of the node."""

    def __init__(self, machine: StateMachine, sessions: SessionStore, node: NodeQuotas) -> None:
        self._machine = machine
        self._sessions = sessions
        self._node = node
        self._own: Counter[str] = Counter()
        """Bytes that are not merged here, as `node` has them of all replicas."""
        self._accepted: Counter[str] = Counter()
        """Those of them that were accepted since the last count."""
        self._held: dict[int, tuple[str, int]] = {}
        """Input -> whose it is, and its bytes in the last count; none without bytes."""
        self._pending_bytes = 0
        """The same of `node.pending_bytes`."""

    def recount(self, disk_bytes: int, pending_bytes: int) -> int:
        """Recount the bytes that are held and not merged, for a disk of this size;
        `pending_bytes`: what is to be written to merged logs here. Returns the sum of both, of all
        replicas of the node: they share its disk.
        """
        self._node.measured(disk_bytes)
        self.count()
        self._note_pending(pending_bytes)
        return self._node.unmerged.total() + self._node.pending_bytes

    def _note_pending(self, pending_bytes: int) -> None:
        self._node.pending_bytes += pending_bytes - self._pending_bytes
        self._pending_bytes = pending_bytes

    def count(self) -> None:
        """Recount the unmerged bytes of inputs that had some at the last count, or received bytes
        since. All other inputs have none.
        """
        known = self._machine.state.sessions
        self._add_all(self._accepted, -1)
        self._accepted.clear()
        for number in self._held.keys() | self._sessions.take_grown():
            identity, held = self._held.pop(number, ("", 0))
            self._add(identity, -held)
            entry = known.inputs.get(number)
            if entry is None or not (held := self._sessions.unmerged_bytes(entry)):
                continue
            identity = known.by_name[entry.session].identity
            self._held[number] = identity, held
            self._add(identity, held)

    def _add(self, identity: str, held: int) -> None:
        if held:
            self._own[identity] += held
            self._node.unmerged[identity] += held

    def _add_all(self, counted: Counter[str], sign: int) -> None:
        for identity, held in counted.items():
            self._add(identity, sign * held)

    def forget(self) -> None:
        """Nothing is held here any more, nor to be written."""
        self._node.unmerged.subtract(self._own)
        for each in (self._own, self._accepted, self._held):
            each.clear()
        self._note_pending(0)

    def accept(self, entry: Input, size: int) -> None:
        """Count bytes of a publisher. Raises RequestRefused if they exceed its quota."""
        identity = self._machine.state.sessions.by_name[entry.session].identity
        limit, unmerged = self._node.unmerged_limit, self._node.unmerged
        if limit and unmerged[identity] + size > limit:
            self.count()  # some of it may be merged by now
            held = unmerged[identity]
            if held + size > limit:
                raise _too_many(identity, f"{held} bytes that are not merged, of at most {limit}")
        self._sessions.used.grown[entry.number] = None
        self._accepted[identity] += size
        self._own[identity] += size
        unmerged[identity] += size

    def check_session(self, identity: str, session: str) -> None:
        """Raise RequestRefused if the identity may not open a run of that session."""
        if self._machine.state.sessions.open_run_of(session) is not None:
            return  # the newer run ends it
        count, limit = self._machine.index.open_runs[identity], self._node.quotas.sessions
        if count >= limit:
            raise _over_quota(identity, f"{count} sessions with an open run, of at most {limit}")

    def check_partition(self, session: str) -> None:
        """Raise RequestRefused if the session's identity may not publish to another partition."""
        known = self._machine.state.sessions.by_name.get(session)
        if known is None:
            return
        count = self._machine.index.open_inputs[known.identity]
        limit = self._node.quotas.partitions
        if count >= limit:
            text = f"{counted(count, 'partition')} in its open sessions, of at most {limit}"
            raise _over_quota(known.identity, text)


def _too_many(identity: str, what: str) -> RequestRefused:
    return RequestRefused(FaultCode.TOO_MANY, f"{identity} has {what}", REMEDY)


def _over_quota(identity: str, what: str) -> RequestRefused:
    return RequestRefused(FaultCode.OVER_QUOTA, f"{identity} has {what}", END_OTHERS)
