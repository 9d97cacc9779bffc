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
    """A site. `votes`: its members may vote; `lag_ms`: that of its best member."""

    name: str
    votes: bool
    lag_ms: int
    members: tuple[SiteMember, ...]


class SiteRows(AdminAnswer, frozen=True):
    """All sites, in the order in which they were added, and the members that are in none."""

    sites: tuple[SiteInfo, ...]
    elsewhere: tuple[str, ...]
