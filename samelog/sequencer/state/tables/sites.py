"""Sites of a cluster: which there are, which of them vote and lead, and which member is in which.

Invariant: a member is in a site only if the cluster has that site, so a name that is mistyped makes
no site; a member of a site that only reads does not become a voter, and no site with voters becomes
one that only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from samelog.format.errors import InvalidName
from samelog.format.names import check_session_name
from samelog.format.numbers import Unsigned32
from samelog.placement.sites import Sites
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.members import Member


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


AnySiteChange = AddSite | RemoveSite | SetSiteCommand | SetSiteVotes | SetSiteLeads
SiteCommand = AnySiteChange | PromoteSiteCommand

SITES_MOST = 64
MembersByNumber = Mapping[int, Member]
Changed = RecordEvent | tuple[str, str] | None
"""The event that remains of a change, or why nothing changed."""


def _add_site(sites: Sites, members: MembersByNumber, command: AddSite) -> Changed:
    name = command.name
    if name in sites.votes:
        return "SITE_EXISTS", f"there is a site {name!r} already"
    if len(sites.votes) >= SITES_MOST:
        return "TOO_MANY", f"a cluster has at most {SITES_MOST} sites"
    try:
        check_session_name(name)
    except InvalidName as error:
        return "INVALID_NAME", str(error)
    sites.votes[name] = command.votes
    return site_event(command)


def _remove_site(sites: Sites, members: MembersByNumber, command: RemoveSite) -> Changed:
    name = command.name
    if name not in sites.votes:
        return unknown_site(sites, name)
    there = [number for number, site in sites.members.items() if site == name]
    if there:
        names = ", ".join(members[each].name for each in there if each in members)
        return "SITE_IN_USE", f"site {name!r} has members: {names}"
    del sites.votes[name]
    sites.let_lead(name, leads=False)
    return site_event(command)


def _set_site(sites: Sites, members: MembersByNumber, command: SetSiteCommand) -> Changed:
    site = command.site
    member = members.get(command.member)
    if member is None:
        return "UNKNOWN_NODE", f"no node has the number {command.member}"
    if not site:
        sites.members.pop(command.member, None)
        return None
    if site not in sites.votes:
        return unknown_site(sites, site)
    if member.voter and not sites.votes[site]:
        return "SITE_ONLY_READS", f"{member.name} votes, and site {site!r} only reads"
    sites.members[command.member] = site
    return None


def _set_votes(sites: Sites, members: MembersByNumber, command: SetSiteVotes) -> Changed:
    name = command.name
    if name not in sites.votes:
        return unknown_site(sites, name)
    there = [members[n] for n, site in sites.members.items() if site == name]
    voters = [each.name for each in there if each.voter]
    if voters and not command.votes:
        return "SITE_IN_USE", f"members of site {name!r} vote: {', '.join(voters)}"
    if sites.votes[name] == command.votes:
        return None
    sites.votes[name] = command.votes
    if not command.votes:
        sites.let_lead(name, leads=False)
    return site_event(command)


def _set_leads(sites: Sites, members: MembersByNumber, command: SetSiteLeads) -> Changed:
    name = command.name
    if name not in sites.votes:
        return unknown_site(sites, name)
    if command.leads and not sites.votes[name]:
        return "SITE_ONLY_READS", f"site {name!r} only reads: nobody leads there"
    if (name in sites.leads) == command.leads:
        return None
    sites.let_lead(name, leads=command.leads)
    return site_event(command)


def unknown_site(sites: Sites, name: str) -> tuple[str, str]:
    """Why nothing is done with a site that the cluster does not have."""
    known = ", ".join(sites.votes) or "none"
    return "UNKNOWN_SITE", f"no site is called {name!r}; there are: {known}"


ToldChange = AddSite | RemoveSite | PromoteSiteCommand | SetSiteVotes | SetSiteLeads


def site_event(command: ToldChange) -> RecordEvent:
    """What is remembered, and told, of a change that is made."""
    if isinstance(command, PromoteSiteCommand):
        return RecordEvent(command.at_ms, "site-promoted", command.text)
    if isinstance(command, SetSiteVotes):
        what = "may vote" if command.votes else "only read"
        text = f"members of site {command.name!r} {what} from now on"
        return RecordEvent(command.at_ms, "site-altered", text)
    if isinstance(command, SetSiteLeads):
        what = "should" if command.leads else "need not"
        text = f"leaders {what} be in site {command.name!r} from now on"
        return RecordEvent(command.at_ms, "site-altered", text)
    if isinstance(command, RemoveSite):
        return RecordEvent(command.at_ms, "site-removed", f"site {command.name!r} was removed")
    what = "whose members may vote" if command.votes else "whose members only read"
    return RecordEvent(command.at_ms, "site-added", f"site {command.name!r} was added, {what}")


def change_sites(sites: Sites, members: MembersByNumber, command: AnySiteChange) -> Changed:
    """Apply a command; return why it changes nothing, or the event that remains of it, if any."""
    return _CHANGES[type(command)](sites, members, command)


_CHANGES: Mapping[type, Callable[[Sites, MembersByNumber, Any], Changed]] = {
    AddSite: _add_site,
    RemoveSite: _remove_site,
    SetSiteCommand: _set_site,
    SetSiteVotes: _set_votes,
    SetSiteLeads: _set_leads,
}
