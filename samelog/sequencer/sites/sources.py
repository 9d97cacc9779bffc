"""From whom a member copies merged bytes where a cluster has sites that only read. Pure.

One member of such a site is its gateway: that with the lowest number of those that are up. It
copies from voters, and the others copy from it, so each byte crosses the long line once
(docs/sites.md, S21). The gateway never asks those who copy from it.

Invariant: nobody is left without somebody to ask because of its site: where no gateway is up, or
no voter, whoever is up is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from samelog.consensus import Raft
from samelog.placement.sites import Sites
from samelog.sequencer.state.tables.members import Member

GATEWAY_TRIES = 50
"""So often in a row the gateway is asked in vain before a voter is: it is a round trip over the
line behind what it is asked for.
"""


def copy_sources(
    own: int, peers: Sequence[int], sites: Sites, voters: Collection[int]
) -> list[int]:
    """Whom to ask, in the order that CopyPlan takes: the last resort first. `peers`: who is up, the
    leader first.
    """
    if not sites.only_reads(own):
        return list(peers)
    site = sites.members[own]
    mates = [each for each in peers if sites.members.get(each) == site]
    gateway = min([own, *mates])
    far = [each for each in peers if each in voters] or [each for each in peers if each != gateway]
    return far if gateway == own else [*far[:1], *[gateway] * GATEWAY_TRIES]


def far_members(sites: Sites, members: Mapping[int, Member], own: int) -> dict[str, list[Member]]:
    """Site -> who is there, of sites that may be promoted without a member that votes: those that
    it is not in. Empty for one that only reads, which acknowledges nothing.
    """
    if sites.only_reads(own):
        return {}
    far: dict[str, list[Member]] = {}
    for number, site in sorted(sites.members.items()):
        if site != sites.members.get(own) and number in members and number != own:
            far.setdefault(site, []).append(members[number])
    return far


class CopySources:
    """Of one replica: from whom it copies merged bytes now."""

    def __init__(
        self, number: int, sites: Callable[[], Sites], raft: Raft, peers: Callable[[], list[int]]
    ) -> None:
        """`number`: of this member; `sites`: as they are now; `peers`: as in `copy_sources`."""
        self._number = number
        self._sites = sites
        self._raft = raft
        self._peers = peers

    def __call__(self) -> list[int]:
        """See `copy_sources`."""
        return copy_sources(self._number, self._peers(), self._sites(), self._raft.voters)

    def gives_sessions(self, number: int) -> bool:
        """Whether session bytes are pulled from this peer, which has more of them."""
        is_there = number == self._raft.leader or number in self._peers()
        return is_there and self.takes_sessions

    @property
    def takes_sessions(self) -> bool:
        """Whether this member takes session bytes, too: no site that only reads does."""
        return not self._sites().only_reads(self._number)
