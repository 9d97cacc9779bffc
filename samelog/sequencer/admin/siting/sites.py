"""Answers administrators about sites: which there are, who is there, which of them vote.

Invariant: what is answered with success is committed.
"""

from __future__ import annotations

from collections.abc import Mapping

from samelog.admin import site_requests
from samelog.admin.site_answers import SiteInfo, SiteMember, SiteRows
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.sites import AddSite, RemoveSite, SetSiteLeads, SetSiteVotes
from samelog.wire.errors import FaultCode

_SITE_CODES: Mapping[str, FaultCode] = {
    "SITE_EXISTS": FaultCode.ALREADY_EXISTS,
    "TOO_MANY": FaultCode.TOO_MANY,
    "LEVEL_TOO_LOW": FaultCode.NOT_READY,
    "INVALID_NAME": FaultCode.INVALID_NAME,
    "SITE_IN_USE": FaultCode.CHANGE_PENDING,
}
_SITE_REMEDIES: Mapping[str, str] = {
    "SITE_IN_USE": "remove these nodes, or change their [node] site and restart them",
    "UNKNOWN_SITE": "samelog site list",
    "LEVEL_TOO_LOW": "samelog cluster upgrade --finalize",
}


def list_sites(node: ServedNode, _request: site_requests.ListSites) -> SiteRows:
    """As this node sees it."""
    sites, members = (
        node.logs.machine.state.placement.sites,
        node.logs.machine.state.members.by_number,
    )
    elsewhere = tuple(each.name for n, each in members.items() if n not in sites.members)
    return SiteRows(tuple(_site(node, name) for name in sites.votes), elsewhere)


def _site(node: ServedNode, name: str) -> SiteInfo:
    state, now = node.logs.machine.state, node.member.clock.now()
    sites, lags = state.placement.sites, node.peers.whereabouts.lags
    there = [state.members.by_number[n] for n, site in sites.members.items() if site == name]
    members = []
    for each in there:
        lag = lags.of_member(each.number, now)
        members.append(SiteMember(each.name, each.voter, lag.lag_ms, lag.records))
    lag_ms, leads = lags.of_site(name, sites, now), name in sites.leads
    return SiteInfo(name, sites.votes[name], lag_ms, tuple(members), leads)


async def create_site(node: ServedNode, request: site_requests.CreateSite) -> SiteRows:
    """Raises ChangeRefused or TimeoutError, as the next one does."""
    now_ms = node.member.clock.wall_ms()
    return await _change_sites(node, AddSite(request.site, request.votes, now_ms))


async def drop_site(node: ServedNode, request: site_requests.DropSite) -> SiteRows:
    """Have a site without members removed."""
    return await _change_sites(node, RemoveSite(request.site, node.member.clock.wall_ms()))


async def alter_site(node: ServedNode, request: site_requests.AlterSite) -> SiteRows:
    """Let members of a site vote, or only read."""
    now_ms = node.member.clock.wall_ms()
    return await _change_sites(node, SetSiteVotes(request.site, request.votes, now_ms))


async def let_site_lead(node: ServedNode, request: site_requests.LetSiteLead) -> SiteRows:
    """Have leaders in a site, or not any more."""
    now_ms = node.member.clock.wall_ms()
    return await _change_sites(node, SetSiteLeads(request.site, request.leads, now_ms))


async def _change_sites(
    node: ServedNode, command: AddSite | RemoveSite | SetSiteVotes | SetSiteLeads
) -> SiteRows:
    outcome = await node.raft.proposer.propose(command)
    if isinstance(outcome, Rejection):
        code = _SITE_CODES.get(outcome.code, FaultCode.OUT_OF_RANGE)
        raise ChangeRefused(code, outcome.message, _SITE_REMEDIES.get(outcome.code, ""))
    return list_sites(node, site_requests.ListSites())
