"""The sites of a cluster: the places in which it has members, and which of them vote.

Invariant: a member is in at most one site.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Sites(msgspec.Struct):
    """Which sites there are, in the order in which they were added, and who is in which."""

    votes: dict[str, bool] = {}
    """Site -> whether its members may vote."""
    members: dict[int, str] = {}
    """Member -> its site; one that is missing has said none."""

    def may_vote(self, member: int) -> bool:
        """Whether a member may become a voter: where some sites only read, it has to be in one that
        does not.
        """
        if all(self.votes.values()):
            return True
        return self.votes.get(self.members.get(member, ""), False)

    def only_reads(self, member: int) -> bool:
        """Whether a member is in a site that only reads: it takes merged bytes, no session's."""
        return not self.votes.get(self.members.get(member, ""), True)

    def keep(self, members: Mapping[int, object]) -> None:
        """Forget who is no member any more."""
        self.members = {number: site for number, site in self.members.items() if number in members}
