"""Doubt of a node in itself: a loss of power with `fsync=interval` may have taken entries that it
had acknowledged.

It is over when the node holds a committed entry of its leader's term, and with it, as every
majority does, all that were ever committed. But a leader that has led since before the loss may
still count on what was lost, until it has answered: so much, too, must be there then.

`Trust` is for what a node may have forgotten besides: docs/raft.md, "Nodes that forgot".

Invariant: nothing that the node acknowledged before is counted by a leader of a later term.
"""

from __future__ import annotations


class Doubt:
    """One node's, from its start until it is over."""

    __slots__ = ("_ask_at", "_index", "number", "term")

    def __init__(self, term: int, number: int) -> None:
        """`term`: the one in which the node began; `number`: drawn at random, to ask under."""
        self.term = term
        self.number = number
        self._index: int | None = None
        self._ask_at = float("-inf")

    def must_ask(self, term: int, now: float, every_s: float) -> bool:
        """Whether to ask the leader of `term` now, and not again for `every_s`: a question makes
        it send a heartbeat, and with heartbeats we ask.
        """
        if term != self.term or self._index is not None or now < self._ask_at:
            return False
        self._ask_at = now + every_s
        return True

    def answered(self, index: int) -> None:
        """The leader of `term` knows that the node restarted, and had committed up to `index`."""
        if self._index is None:
            self._index = index

    def is_over(self, term: int, commit: int) -> bool:
        """Whether everything is here, where `commit` is the last entry known to be committed, and
        is of the present `term`.
        """
        return term > self.term or (self._index is not None and self._index <= commit)


class Trust:
    """Who else may have forgotten what it promised, as far as one node knows."""

    __slots__ = ("agreed_term", "ahead", "begins", "doubted", "elected_in_doubt", "needs_all")

    def __init__(self) -> None:
        self.begins = False
        """The node was made for a group that is yet to begin."""
        self.needs_all = False
        """It campaigns for the votes of all: too few of those that it has are of any majority."""
        self.doubted: set[int] = set()
        """Whose votes for this node are part of no majority."""
        self.agreed_term = -1
        """In which it voted, while suspect, for a candidate that needs all."""
        self.elected_in_doubt = False
        """This node leads by the votes of all, because too many were doubtful or suspect."""
        self.ahead: dict[int, int] = {}
        """Voter -> entry that it acknowledged to this leader, which has no such entry: a majority
        has forgotten what was committed.
        """
