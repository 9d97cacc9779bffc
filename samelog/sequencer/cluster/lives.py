"""What a node knows of the lives of the others, and what an introduction says against that.

Every start of a node is a life with a random id, the incarnation, and a list of those before it.
The first exchange of every connection between members compares lives, before anything of Raft
counts. A node that does not know an earlier life of its own number has lost state, and so has one
of whose replicas the log ends before an entry that it acknowledged in an earlier life, or is in an
earlier term than one that it led. It has to begin again as a suspect, which counts for nothing
until an entry lets it in again. This only detects; what makes it
safe is that a node whose directory is not provably the one it was starts as a suspect by itself
(docs/raft.md, "Nodes that forgot").

Invariant: a life that is connected and heard of is never displaced by another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from samelog.wire.bounds import LIVES_TOLD, METADATA_GROUP, UNDECIDED, Life, ReplicaEnd
from samelog.wire.errors import FaultCode, ProtocolFault

LIVE_S = 2.5
"""A connection over which nothing came for so long displaces nobody; peers ping every 2 s."""


class KnownLife(NamedTuple):
    """The newest life of a node that is known here."""

    boot: int
    incarnation: str


NEVER_SEEN = KnownLife(0, "")
BEGAN_BEFORE = "its cluster had begun before it was bootstrapped"


class Contradiction(NamedTuple):
    """Somebody has forgotten something: the peer that introduced itself, or this node."""

    reason: str
    known: KnownLife = NEVER_SEEN
    """The life that it does not know."""
    is_own: bool = False


class HasForgotten(Exception):
    """A peer knows something of this node that its directory does not: it begins again, as a
    suspect.
    """

    def __init__(self, found: Contradiction) -> None:
        super().__init__(found.reason)
        self.found = found


class Acknowledged(NamedTuple):
    """What a peer's replica acknowledged to a leader on this member: its term, and the entry. Entry
    0: the peer led in this term.
    """

    term: int
    entry: int
    group: int = METADATA_GROUP
    replica: int = 0

    @property
    def text(self) -> str:
        """What the peer has forgotten, in words."""
        group = f" of group {self.group}" if self.group != METADATA_GROUP else ""
        if not self.entry:
            return f"it led in term {self.term}{group}"
        return f"it acknowledged entry {self.entry} in term {self.term}{group}"


def descends(life: Life, known: KnownLife) -> bool:
    """Whether a life came after another one of the same directory, as far as its list can tell."""
    if life.incarnation == known.incarnation:
        return life.boot == known.boot
    if life.boot <= known.boot:
        return False
    told = life.predecessors
    is_beyond = len(told) >= LIVES_TOLD and life.boot - known.boot > LIVES_TOLD
    return is_beyond or known.incarnation in told


def contradiction(
    own: Life, peer: Life, known: KnownLife, acknowledged: Iterable[Acknowledged]
) -> Contradiction | None:
    """What an introduction contradicts. Raises ProtocolFault where nobody forgot: these are two
    clusters.
    """
    _check_same_cluster(own, peer)
    if own.is_sure and peer.cluster_id and not own.cluster_id:
        return Contradiction(BEGAN_BEFORE, is_own=True)
    if known != NEVER_SEEN and not descends(peer, known):
        return Contradiction(f"boot {known.boot} was another life of it", known)
    if peer.is_sure and own.cluster_id and not peer.cluster_id:
        return Contradiction(BEGAN_BEFORE, known)
    return _forgotten(peer, known, acknowledged)


def _check_same_cluster(own: Life, peer: Life) -> None:
    decided = {own.cluster_id, peer.cluster_id} - {"", UNDECIDED}
    if len(decided) > 1:
        raise ProtocolFault(
            FaultCode.WRONG_CLUSTER,
            f"cluster id {peer.cluster_id}, here it is {own.cluster_id}: two clusters of one name",
            "one was bootstrapped beside the other: stop the nodes of the younger, empty their "
            "directories, start them without --bootstrap",
        )


def _forgotten(
    peer: Life, known: KnownLife, acknowledged: Iterable[Acknowledged]
) -> Contradiction | None:
    """What a peer's replicas that think themselves sure should know."""
    ends = {(each.group, each.replica): (each.term, each.last_index) for each in peer.replicas}
    if peer.is_sure:
        ends[METADATA_GROUP, 0] = peer.term, peer.last_index
    for each in acknowledged:
        end = ends.get((each.group, each.replica))
        if end is not None and end < (each.term, each.entry):
            return Contradiction(each.text, known)
    return None


class Lives:
    """One node's knowledge of its peers' lives."""

    def __init__(
        self,
        own: Callable[[], Life],
        recorded: Callable[[int], KnownLife],
        replicas: Callable[[int], tuple[ReplicaEnd, ...]],
        acknowledged: Callable[[int], Iterable[Acknowledged]],
    ) -> None:
        """`recorded`: by the replicated state; `replicas`: the data groups' that are shared with a
        member; `acknowledged`: by a member's replicas, to this node.
        """
        self.own = own
        self._recorded = recorded
        self._replicas = replicas
        self._acknowledged = acknowledged
        self._met: dict[int, Life] = {}

    @property
    def met(self) -> Mapping[int, Life]:
        """The lives that introduced themselves, by number."""
        return self._met

    def own_to(self, number: int) -> Life:
        """This node's life as it introduces itself to a member."""
        return self.own()._replace(replicas=self._replicas(number))

    def known(self, number: int) -> KnownLife:
        """The newest life of a member."""
        met = self._met.get(number)
        recorded = self._recorded(number)
        return recorded if met is None else max(recorded, KnownLife(met.boot, met.incarnation))

    def contradiction(self, number: int, life: Life) -> Contradiction | None:
        """Return what the introduction of a member contradicts, or None. Raises ProtocolFault.

        A process does not lose state while it runs, so acknowledgements are compared once per life.
        A later introduction in the same life was encoded before its handshake, during which the
        member acknowledges further entries over its other connections.
        """
        met = self._met.get(number)
        is_met = met is not None and met.incarnation == life.incarnation
        acknowledged = () if is_met else self._acknowledged(number)
        return contradiction(self.own(), life, self.known(number), acknowledged)

    def meet(self, number: int, life: Life) -> bool:
        """Accept a member that introduced itself; return whether it has restarted."""
        before = self._met.get(number)
        self._met[number] = life
        return before is None or before.incarnation != life.incarnation
