"""The sites of a cluster: the places in which it has members, and which of them vote.

Invariant: a member is in at most one site.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec


class Promotion(msgspec.Struct, frozen=True):
    """A site that began to vote after the others were lost: by which member, behind which entry."""

    site: str
    member: int
    entry: int
    term: int
    at_ms: int
    ends: dict[int, int] = {}
    """Partition -> where it ended; of the newest promotion only."""


class Sites(msgspec.Struct):
    """Which sites there are, in the order in which they were added, and who is in which."""

    votes: dict[str, bool] = {}
    """Site -> whether its members may vote."""
    members: dict[int, str] = {}
    """Member -> its site; one that is missing has said none."""
    promotions: list[Promotion] = []
    """All that there were, the newest last."""
    leads: list[str] = []
    """Sites whose members should lead; empty: any may."""

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

    def who_only_read(self, members: Iterable[int]) -> frozenset[int]:
        """Those of these members that are in sites that only read."""
        if all(self.votes.values()):
            return frozenset()
        return frozenset(each for each in members if self.only_reads(each))

    def may_lead(self, member: int) -> bool:
        """Whether a member is where leaders should be."""
        return not self.leads or self.members.get(member, "") in self.leads

    def let_lead(self, name: str, *, leads: bool) -> None:
        """Whether leaders should be in a site."""
        self.leads = [each for each in self.leads if each != name] + [name] * leads

    def promote(self, promotion: Promotion) -> None:
        """One site votes from now on, and no other does."""
        older = [msgspec.structs.replace(each, ends={}) for each in self.promotions]
        self.promotions = [*older, promotion]
        self.votes = {name: name == promotion.site for name in self.votes}
        self.leads = []

    def has_more(self, promotions: int, term: int, entry: int) -> bool:
        """Whether a member that knows of so many promotions has got something, up to this entry,
        that the next one went on without (rule sites.12).
        """
        if promotions >= len(self.promotions):
            return False
        missed = self.promotions[promotions]
        return (term, entry) > (missed.term, missed.entry)

    def promoted_at(self, partition: int) -> int:
        """Where a partition ended at the newest promotion; 0: nothing was lost with a site."""
        return self.promotions[-1].ends.get(partition, 0) if self.promotions else 0

    def keep(self, members: Mapping[int, object]) -> None:
        """Forget who is no member any more."""
        self.members = {number: site for number, site in self.members.items() if number in members}
