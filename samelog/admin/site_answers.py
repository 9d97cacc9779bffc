"""What is answered about the sites of a cluster.

Invariant: as in `samelog.admin.answers`.
"""

from __future__ import annotations

from samelog.admin.answers import AdminAnswer


class SiteMember(AdminAnswer, frozen=True):
    """A member of a site. `lag_ms`: how long the oldest record has waited that it lacks; `records`:
    how many it lacks. Both are -1 while it says nothing.
    """

    node: str
    voter: bool
    lag_ms: int
    records: int


class SiteInfo(AdminAnswer, frozen=True):
    """A site. `votes`: its members may vote; `lag_ms`: that of its best member; `leads`: leaders
    should be there.
    """

    name: str
    votes: bool
    lag_ms: int
    members: tuple[SiteMember, ...]
    leads: bool = False


class PartitionStanding(AdminAnswer, frozen=True):
    """Where a partition ends on the node, and where it ends as far as the node knows: what is
    between the two has not come there.
    """

    topic: str
    partition: int
    end_offset: int
    known_offset: int


class Standing(AdminAnswer, frozen=True):
    """What a node would go on with if its site were promoted. `silent_s`: for how long it has heard
    of no leader; `entry` and `term`: its newest; `reached`: other members that are connected;
    `mates`: the other members of its site; `lost_groups`: data groups of which it has no replica.
    """

    node: str
    site: str
    cluster_id: str
    leads: bool
    silent_s: float
    entry: int
    term: int
    committed: int
    reached: tuple[str, ...]
    mates: tuple[str, ...]
    voters: tuple[str, ...]
    partitions: tuple[PartitionStanding, ...]
    lost_groups: tuple[int, ...]


class PromotionBegun(AdminAnswer, frozen=True):
    """The node restarts as the first voter of its site. `cluster_id`: the id of the cluster from
    then on.
    """

    node: str
    cluster_id: str


class SiteRows(AdminAnswer, frozen=True):
    """All sites, in the order in which they were added, and the members that are in none."""

    sites: tuple[SiteInfo, ...]
    elsewhere: tuple[str, ...]
