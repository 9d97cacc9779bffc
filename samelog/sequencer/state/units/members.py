"""Commands about members and sites that touch other tables too.

Invariant: a command whose preconditions do not hold changes nothing, and says why as a stable code
and a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from samelog.placement.cluster_ids import promoted_id
from samelog.placement.sites import Promotion
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.tables.events import RecordEvent
from samelog.sequencer.state.tables.members import (
    LetIn,
    RaiseLevel,
    SetListeners,
    SetMaintenanceCommand,
    SetMembers,
)
from samelog.sequencer.state.tables.sites import (
    AnySiteChange,
    PromoteSiteCommand,
    change_sites,
    site_event,
    unknown_site,
)
from samelog.sequencer.state.types import State


def _set_members(state: State, command: SetMembers) -> WhyNot:
    """Raft has accepted them already, so there is nothing to refuse."""
    state.members.set_members(command)
    state.placement.keep(state.members.by_number)
    return None


def _let_in(state: State, command: LetIn) -> WhyNot:
    state.members.let_in(command)
    if not state.placement.own:
        state.placement.let_in(command.number)
    return None


def _raise_level(state: State, command: RaiseLevel) -> WhyNot:
    problem = state.members.raise_level(command)
    if problem is None and command.since:
        text = f"the cluster's feature level was raised from {command.since} to {command.level}"
        state.events.remember(RecordEvent(command.at_ms, "level-raised", text))
    return problem


MEMBER_CHANGES: Mapping[type, Callable[[State, Any], WhyNot]] = {
    SetMembers: _set_members,
    LetIn: _let_in,
    RaiseLevel: _raise_level,
    SetMaintenanceCommand: lambda state, command: state.members.set_maintenance(command),
    SetListeners: lambda state, command: state.members.set_listeners(command),
}


def _promote_site(state: State, command: PromoteSiteCommand) -> WhyNot:
    """The cluster has another id from now on, so whoever is of before it can be told."""
    sites = state.placement.sites
    if command.site not in sites.votes:
        return unknown_site(sites, command.site)
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


def _change_sites(state: State, command: AnySiteChange) -> WhyNot:
    changed = change_sites(state.placement.sites, state.members.by_number, command)
    if isinstance(changed, RecordEvent):
        state.events.remember(changed)
        return None
    return changed


SITE_CHANGES: Mapping[type, Callable[[State, Any], WhyNot]] = {
    **dict.fromkeys(get_args(AnySiteChange), _change_sites),
    PromoteSiteCommand: _promote_site,
}
