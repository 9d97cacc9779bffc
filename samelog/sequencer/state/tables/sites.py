"""Commands about the sites of a cluster, and about which site a member is in.

Invariant: applying a command needs nothing but the state; field order is the format
(docs/state-machine.md).
"""

from __future__ import annotations

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command


class AddSite(Command, frozen=True, tag=140):
    """Let the cluster have one more site. `votes`: its members may vote; else they only read."""

    name: str
    votes: bool
    at_ms: int


class RemoveSite(Command, frozen=True, tag=141):
    """Let the cluster have a site no more; refused while a member is in it."""

    name: str
    at_ms: int


class SetSiteCommand(Command, frozen=True, tag=142):
    """A member is in this site; empty: in none."""

    member: Unsigned32
    site: str


class PromoteSiteCommand(Command, frozen=True, tag=143):
    """The others are lost: from now on this site votes, and no other does. `promotion`: a random
    id, 16 hexadecimal digits; `member`: goes on with what it has, up to `entry` of `term`; `text`:
    what may be lost. Never proposed: the member applies it while it restarts its log.
    """

    site: str
    promotion: str
    member: Unsigned32
    entry: int
    term: int
    at_ms: int
    text: str


class SetSiteVotes(Command, frozen=True, tag=144):
    """Members of a site may vote from now on, or may not."""

    name: str
    votes: bool
    at_ms: int


class SetSiteLeads(Command, frozen=True, tag=150):
    """Leaders should be in this site from now on, or need not be. Where none is named, any member
    may lead.
    """

    name: str
    leads: bool
    at_ms: int


SiteCommand = (
    AddSite | RemoveSite | SetSiteCommand | PromoteSiteCommand | SetSiteVotes | SetSiteLeads
)
