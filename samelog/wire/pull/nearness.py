"""Whether a node near the reader is the one to read from: it is left when it falls behind, and
returned to once it has had everything for a while (docs/sites.md, S16 and S17). Pure.

One copy stands for all that are read over a connection: a node is late as a whole, with the line
to its site. A copy that is read from the node has the end confirmed by the cluster's leader now and
then; it has to be there by the next time. While others read, the node is looked at: its end has to
be behind the copy's.

Invariant: between leaving and returning lies RETURN_S at least, so that a node at the limit does
not send its readers to and fro over the long line.
"""

from __future__ import annotations

from typing import Generic

from samelog.wire.pull.copies import CopyT

CHECK_S = 10.0
"""So far behind a node may be."""
RETURN_S = 30.0


class Nearness(Generic[CopyT]):
    """What a reader knows of one node near it."""

    def __init__(self) -> None:
        self.is_late = False
        """It was left, and has not caught up for long enough since."""
        self._check_at = 0.0
        self._asked: CopyT | None = None
        """The copy whose end the cluster was asked to confirm."""
        self._goal: int | None = None
        """Where that copy has to be at the next check; None: the cluster has not said."""
        self._looks: dict[int, CopyT] = {}
        self._good_since: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether the node is to be checked now; the next time is CHECK_S later."""
        if now < self._check_at:
            return False
        self._check_at = now + CHECK_S
        return True

    # --- while it is read from --------------------------------------------------------------------

    def has_kept_up(self, copy: CopyT) -> bool:
        """Whether a copy is where the cluster was at the last check; an end that nobody could
        confirm since then is none.
        """
        if self._asked is not copy:
            return True
        if self._goal is None or copy.log.next_offset < self._goal:
            return False
        self.is_late = False
        return True

    def ask(self, copy: CopyT) -> None:
        """The cluster is asked where this copy's log ends."""
        self._asked, self._goal = copy, None

    def confirmed(self, copy: CopyT, end: int) -> None:
        """The cluster has said where a log ends."""
        if copy is self._asked:
            self._goal = end

    def leave(self) -> None:
        """It is late."""
        self.is_late, self._asked, self._good_since = True, None, None

    # --- while others are -------------------------------------------------------------------------

    def look(self, handle: int, copy: CopyT) -> None:
        """The node is asked where its log of a copy ends."""
        self._looks[handle] = copy

    def looked_at(self, handle: int) -> CopyT | None:
        """What a look is at; None: the handle is of none."""
        return self._looks.get(handle)

    def looked(self, handle: int, end: int | None, now: float) -> bool | None:
        """The node has said so (None: it refused). Whether to return to it; None: the handle is of
        no look.
        """
        copy = self._looks.pop(handle, None)
        if copy is None:
            return None
        if end is None or end < copy.log.next_offset:
            self._good_since = None
            return False
        if self._good_since is None:
            self._good_since = now
        if now < self._good_since + RETURN_S:
            return False
        self.is_late, self._good_since = False, None
        return True
