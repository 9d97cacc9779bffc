"""Who may have forgotten what it promised, as far as one node knows.

Invariant: nothing here makes a vote count; it says when those of all are needed.
"""

from __future__ import annotations


class Trust:
    """One node's view."""

    __slots__ = ("agreed_term", "ahead", "begins", "elected_in_doubt", "needs_all")

    def __init__(self) -> None:
        self.begins = False
        """The node was made for a group that is yet to begin."""
        self.needs_all = False
        """It campaigns for the votes of all: too few of those that it has are of any majority."""
        self.agreed_term = -1
        """In which it voted, while suspect, for a candidate that needs all."""
        self.elected_in_doubt = False
        """This node leads by the votes of all, because too many were doubtful or suspect."""
        self.ahead: dict[int, int] = {}
        """Voter -> entry that it acknowledged to this leader, which has no such entry: a majority
        has forgotten what was committed.
        """
