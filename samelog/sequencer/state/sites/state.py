"""What commands about sites change in the replicated state.

Invariant: a member is in a site only if the cluster has that site, so a name that is mistyped makes
no site; a member of a site that only reads does not become a voter, and no site with voters becomes
one that only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from samelog.format.errors import InvalidName
from samelog.format.names import check_session_name
from samelog.placement.sites import Sites
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.commands import RecordEvent
from samelog.sequencer.state.sites.commands import AddSite, RemoveSite, SetSiteCommand

if TYPE_CHECKING:
    from samelog.sequencer.state.types import State

SITES_MOST = 64


def _add_site(state: State, command: AddSite) -> WhyNot:
    sites, name = state.placement.sites, command.name
    if name in sites.votes:
        return "SITE_EXISTS", f"there is a site {name!r} already"
    if len(sites.votes) >= SITES_MOST:
        return "TOO_MANY", f"a cluster has at most {SITES_MOST} sites"
    try:
        check_session_name(name)
    except InvalidName as error:
        return "INVALID_NAME", str(error)
    sites.votes[name] = command.votes
    state.remember(site_event(command))
    return None


def _remove_site(state: State, command: RemoveSite) -> WhyNot:
    sites, name = state.placement.sites, command.name
    if name not in sites.votes:
        return _unknown(sites, name)
    there = [number for number, site in sites.members.items() if site == name]
    if there:
        names = ", ".join(state.members[each].name for each in there if each in state.members)
        return "SITE_IN_USE", f"site {name!r} has members: {names}"
    del sites.votes[name]
    state.remember(site_event(command))
    return None


def _set_site(state: State, command: SetSiteCommand) -> WhyNot:
    sites, site = state.placement.sites, command.site
    member = state.members.get(command.member)
    if member is None:
        return "UNKNOWN_NODE", f"no node has the number {command.member}"
    if not site:
        sites.members.pop(command.member, None)
        return None
    if site not in sites.votes:
        return _unknown(sites, site)
    if member.voter and not sites.votes[site]:
        return "SITE_ONLY_READS", f"{member.name} votes, and site {site!r} only reads"
    sites.members[command.member] = site
    return None


def _unknown(sites: Sites, name: str) -> WhyNot:
    known = ", ".join(sites.votes) or "none"
    return "UNKNOWN_SITE", f"no site is called {name!r}; there are: {known}"


def site_event(command: AddSite | RemoveSite) -> RecordEvent:
    """What is remembered, and told, of a change that is made."""
    if isinstance(command, RemoveSite):
        return RecordEvent(command.at_ms, "site-removed", f"site {command.name!r} was removed")
    what = "whose members may vote" if command.votes else "whose members only read"
    return RecordEvent(command.at_ms, "site-added", f"site {command.name!r} was added, {what}")


SITE_CHANGES: Mapping[type, Callable[[Any, Any], WhyNot]] = {
    AddSite: _add_site,
    RemoveSite: _remove_site,
    SetSiteCommand: _set_site,
}
