"""Which partitions to copy from peers next, each from whom, and when to go elsewhere: pure.

A partition is copied as one stream, from where its log ends to what the cluster has merged; streams
of several partitions go side by side, as many as `STREAMS`. Those that lack least go first, so that
most of what is read live is served soon; one place is always for who has waited longest, so that
nobody waits for ever.

The leader is asked last, because every acknowledgement waits for it. A peer that brings nothing, or
fails, is followed by the next one at once; when all of them were asked in vain, they are asked
again a little later. One whose copy is not what a majority has is asked again only if there is no
other one, as long as the partition lacks something: a log that differs twice is halted.

Invariant: at most one stream for each partition, at most `STREAMS` in all; whatever is lacking and
not being copied has a time from which on it is due.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

PATIENCE_S = 0.05
"""How long something may be missing before it is pulled: its publisher is probably sending it."""
RETRY_S = 0.5
STREAMS = 8


class Lack(NamedTuple):
    """What a partition lacks: it ends at `end`, cannot go on by itself below `goal`, and the
    cluster has merged up to `known`.
    """

    end: int
    goal: int
    known: int


class CopyOrder(NamedTuple):
    """Copy a partition from a peer; None: there is no peer."""

    partition: int
    peer: int | None


@dataclass(slots=True)
class _Lacking:
    """One partition. `since`: when it began to wait; `turn`: how often another peer was chosen;
    `fruitless`: how many copies in a row brought nothing.
    """

    lack: Lack
    since: float
    due: float
    turn: int = 0
    fruitless: int = 0
    is_copied: bool = False
    """Whether a stream is under way."""
    distrusted: set[int] = field(default_factory=set)
    """Peers whose copies were not what a majority has."""


class CopyPlan:
    """What one node lacks, and the streams under way."""

    def __init__(self) -> None:
        self._lacking: dict[int, _Lacking] = {}
        self._streams = 0
        self._peers = 0
        """How many there were when that was last said."""

    def note(self, partition: int, lack: Lack | None, now: float) -> None:
        """A partition lacks this now; None: nothing."""
        known = self._lacking.get(partition)
        if lack is None:
            if known is not None and not known.is_copied:
                del self._lacking[partition]
        elif known is None:
            self._lacking[partition] = _Lacking(lack, now, now + PATIENCE_S)
        else:
            known.lack = lack

    def next(self, peers: Sequence[int], now: float) -> Iterator[CopyOrder]:
        """The streams to begin now. `peers` can be asked, the leader is the first of them."""
        self._peers = len(peers)
        waiting = {n: each for n, each in self._lacking.items() if not each.is_copied}
        due = {n: each for n, each in waiting.items() if each.due < now}
        while due and self._streams < STREAMS:
            number = self._choose(due)
            chosen = due.pop(number)
            chosen.is_copied = True
            self._streams += 1
            yield CopyOrder(number, _peer(peers, number, chosen) if peers else None)

    def _choose(self, due: dict[int, _Lacking]) -> int:
        if self._streams == STREAMS - 1:
            return min(due, key=lambda number: (due[number].since, number))
        return min(due, key=lambda number: (due[number].lack.known - due[number].lack.end, number))

    def distrust(self, partition: int, peer: int) -> None:
        """The copy of a partition under way, from this peer, is not what a majority has."""
        self._lacking[partition].distrusted.add(peer)

    def ended(self, partition: int, end: int, now: float, *, failed: bool) -> None:
        """The stream of a partition is over, and its log ends at `end`."""
        known = self._lacking[partition]
        self._streams -= 1
        brought = end > known.lack.end
        known.is_copied = False
        known.since = known.due = now
        known.lack = known.lack._replace(end=end)
        known.fruitless = 0 if brought else known.fruitless + 1
        if failed or not brought:
            known.turn += 1
        if known.fruitless:
            all_asked = known.fruitless % max(1, self._peers) == 0
            known.due = now + (RETRY_S if all_asked else PATIENCE_S)

    def fruitless(self, partition: int) -> int:
        """How many copies in a row brought a partition nothing."""
        known = self._lacking.get(partition)
        return 0 if known is None else known.fruitless


def _peer(peers: Sequence[int], partition: int, known: _Lacking) -> int:
    """Whom to ask in this turn: partitions begin with different ones."""
    leader, *others = [peer for peer in peers if peer not in known.distrusted] or peers
    if known.turn % (1 + len(others)) == len(others):
        return leader
    return others[(partition + known.turn) % len(others)]
