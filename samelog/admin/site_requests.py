"""What can be asked of a node about the sites of a cluster.

Invariant: as in `samelog.admin.requests`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from samelog.admin.requests import AdminRequest
from samelog.admin.site_answers import SiteRows

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
