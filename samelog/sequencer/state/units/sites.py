"""What commands about sites change in the replicated state.

Invariant: a member is in a site only if the cluster has that site, so a name that is mistyped makes
no site; a member of a site that only reads does not become a voter, and no site with voters becomes
one that only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from samelog.format.errors import InvalidName
from samelog.format.names import check_session_name
from samelog.placement.cluster_ids import promoted_id
from samelog.placement.sites import Promotion, Sites
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.sites import (
    AddSite,
    PromoteSiteCommand,
    RemoveSite,
    SetSiteCommand,
    SetSiteLeads,
    SetSiteVotes,
)
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
    state.events.remember(site_event(command))
    return None


def _remove_site(state: State, command: RemoveSite) -> WhyNot:
    sites, name = state.placement.sites, command.name
    if name not in sites.votes:
        return _unknown(sites, name)
    there = [number for number, site in sites.members.items() if site == name]
    if there:
        names = ", ".join(
            state.members.by_number[each].name for each in there if each in state.members.by_number
        )
        return "SITE_IN_USE", f"site {name!r} has members: {names}"
    del sites.votes[name]
    sites.let_lead(name, leads=False)
    state.events.remember(site_event(command))
    return None


def _set_site(state: State, command: SetSiteCommand) -> WhyNot:
    sites, site = state.placement.sites, command.site
    member = state.members.by_number.get(command.member)
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


def _promote_site(state: State, command: PromoteSiteCommand) -> WhyNot:
    """The cluster has another id from now on, so whoever is of before it can be told."""
    sites = state.placement.sites
    if command.site not in sites.votes:
        return _unknown(sites, command.site)
    if sites.members.get(command.member) != command.site:
        return "NOT_IN_SITE", f"member {command.member} is not in site {command.site!r}"
    if not state.members.cluster_id:
        return "NOT_BEGUN", "the cluster has no id yet"
    ends = {number: each.next_offset for number, each in state.partitions.by_number.items()}
    place = command.member, command.entry, command.term
    sites.promote(Promotion(command.site, *place, command.at_ms, ends))
    sites.keep(state.members.by_number)
    state.members.cluster_id = promoted_id(state.members.cluster_id, command.promotion)
    state.events.remember(site_event(command))
    return None


def _set_votes(state: State, command: SetSiteVotes) -> WhyNot:
    sites, name = state.placement.sites, command.name
    if name not in sites.votes:
        return _unknown(sites, name)
    there = [state.members.by_number[n] for n, site in sites.members.items() if site == name]
    voters = [each.name for each in there if each.voter]
    if voters and not command.votes:
        return "SITE_IN_USE", f"members of site {name!r} vote: {', '.join(voters)}"
    if sites.votes[name] != command.votes:
        sites.votes[name] = command.votes
        if not command.votes:
            sites.let_lead(name, leads=False)
        state.events.remember(site_event(command))
    return None


def _set_leads(state: State, command: SetSiteLeads) -> WhyNot:
    sites, name = state.placement.sites, command.name
    if name not in sites.votes:
        return _unknown(sites, name)
    if command.leads and not sites.votes[name]:
        return "SITE_ONLY_READS", f"site {name!r} only reads: nobody leads there"
    if (name in sites.leads) != command.leads:
        sites.let_lead(name, leads=command.leads)
        state.events.remember(site_event(command))
    return None


def _unknown(sites: Sites, name: str) -> WhyNot:
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


SITE_CHANGES: Mapping[type, Callable[[Any, Any], WhyNot]] = {
    AddSite: _add_site,
    RemoveSite: _remove_site,
    SetSiteCommand: _set_site,
    PromoteSiteCommand: _promote_site,
    SetSiteVotes: _set_votes,
    SetSiteLeads: _set_leads,
}
