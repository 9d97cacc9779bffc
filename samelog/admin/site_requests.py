"""What can be asked of a node about the sites of a cluster.

Invariant: as in `samelog.admin.requests`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from samelog.admin.requests import AdminRequest, ConfirmedRequest, Offset
from samelog.admin.site_answers import PromotionBegun, SiteRows, Standing

SiteName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$", description="A site.")]


class ListSites(AdminRequest[SiteRows], frozen=True):
    """Which sites there are, who is there, and how far they are behind."""


class CreateSite(AdminRequest[SiteRows], frozen=True):
    """Let the cluster have one more site."""

    site: SiteName
    votes: Annotated[bool, Meta(description="Whether its members may vote.")] = True


class DropSite(AdminRequest[SiteRows], frozen=True):
    """Let the cluster have a site no more."""

    site: SiteName


class AlterSite(AdminRequest[SiteRows], frozen=True):
    """Let members of a site vote from now on, or only read."""

    site: SiteName
    votes: Annotated[bool, Meta(description="Whether its members may vote.")]


class LetSiteLead(AdminRequest[SiteRows], frozen=True):
    """Have leaders in a site from now on, or not any more."""

    site: SiteName
    leads: Annotated[bool, Meta(description="Whether leaders should be there.")] = True


class GetStanding(AdminRequest[Standing], frozen=True):
    """What this node would go on with if its site were promoted."""


class PromoteSite(ConfirmedRequest[PromotionBegun], frozen=True):
    """Let this node, and its site, go on without the others, which are lost."""

    site: SiteName
    entry: Annotated[Offset, Meta(description="The newest entry that any node there has.")]
    term: Annotated[Offset, Meta(description="The term of that entry.")]
    without: Annotated[
        tuple[str, ...], Meta(max_length=64, description="Nodes there that are lost, too.")
    ] = ()
    others_are_down: Annotated[
        bool, Meta(description="Others were heard of lately, and are known to be lost.")
    ] = False
