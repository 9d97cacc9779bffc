"""Sites: which there are, who is in them and may vote, who copies from whom, how far they lag."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from samelog.placement.sites import Sites
from samelog.sequencer.sites.agreeing import PROMISED_S, Agreement
from samelog.sequencer.sites.lags import FRESH_S, UNKNOWN, SiteLags
from samelog.sequencer.sites.leading import WELL_S, LeaderPlace, patience
from samelog.sequencer.sites.sources import copy_sources
from samelog.sequencer.sites.whereabouts import SILENT_S, Whereabouts
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand, decode_commands, encode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Advertised, Member, SetListeners, SetMembers
from samelog.sequencer.state.tables.sites import (
    SITES_MOST,
    AddSite,
    PromoteSiteCommand,
    RemoveSite,
    SetSiteCommand,
    SetSiteLeads,
    SetSiteVotes,
)
from samelog.wire.peer_messages import PeerMessage, SiteLag

VOTERS = range(3)
IN_SITES = {0: "lon", 1: "lon", 2: "lon", 3: "nyc", 4: "nyc"}
EVERYWHERE = Sites({"lon": True, "nyc": False}, IN_SITES)


@pytest.fixture
def machine() -> StateMachine:
    """Three voters and two learners; a site that votes and one that only reads."""
    machine = StateMachine()
    members = [
        Member(n, f"n{n}", f"h{n}:1", f"samelog://node/n{n}", voter=n in VOTERS, promote=True)
        for n in range(5)
    ]
    machine.apply(SetMembers(members, "c"))
    machine.apply(AddSite("lon", True, 1))
    machine.apply(AddSite("nyc", False, 2))
    return machine


def code(machine: StateMachine, command: AnyCommand) -> str:
    """Why a command is refused; empty: it is not."""
    outcome = machine.apply(command)
    return outcome.code if isinstance(outcome, Rejection) else ""


def test_commands_are_the_same_after_a_way_through_the_log() -> None:
    added, put, removed = AddSite("lon", True, 1), SetSiteCommand(3, "lon"), RemoveSite("lon", 2)
    commands: list[AnyCommand] = [added, put, removed]
    assert decode_commands(encode_commands(commands)) == commands


def test_a_member_is_in_a_site_only_if_the_cluster_has_it(machine: StateMachine) -> None:
    assert code(machine, SetSiteCommand(3, "nycc")) == "UNKNOWN_SITE"
    assert code(machine, SetSiteCommand(9, "nyc")) == "UNKNOWN_NODE"
    assert code(machine, SetSiteCommand(3, "nyc")) == ""
    assert machine.state.placement.sites.members == {3: "nyc"}
    assert code(machine, SetSiteCommand(3, "")) == ""
    assert machine.state.placement.sites.members == {}


def test_a_voter_is_in_no_site_that_only_reads(machine: StateMachine) -> None:
    assert code(machine, SetSiteCommand(0, "nyc")) == "SITE_ONLY_READS"
    assert code(machine, SetSiteCommand(0, "lon")) == ""


def test_sites_are_added_once_and_removed_when_empty(machine: StateMachine) -> None:
    assert code(machine, AddSite("lon", False, 3)) == "SITE_EXISTS"
    assert code(machine, AddSite("Not a name", True, 3)) == "INVALID_NAME"
    machine.apply(SetSiteCommand(3, "nyc"))
    assert code(machine, RemoveSite("nyc", 4)) == "SITE_IN_USE"
    assert code(machine, RemoveSite("par", 4)) == "UNKNOWN_SITE"
    machine.apply(SetMembers([machine.state.members.by_number[0]]))
    assert code(machine, RemoveSite("nyc", 5)) == "", "who is no member is in no site"
    assert [event.kind for event in machine.state.events.remembered[-3:]] == [
        "site-added",
        "site-added",
        "site-removed",
    ]
    for number in range(SITES_MOST):
        machine.apply(AddSite(f"s{number}", True, 6))
    assert code(machine, AddSite("one-more", True, 7)) == "TOO_MANY"


def test_where_some_sites_only_read_only_members_of_others_may_vote(machine: StateMachine) -> None:
    sites = machine.state.placement.sites
    machine.apply(SetSiteCommand(3, "nyc"))
    machine.apply(SetSiteCommand(4, "lon"))
    assert not sites.may_vote(3)
    assert sites.only_reads(3)
    assert sites.may_vote(4)
    assert not sites.may_vote(2), "it has not said where it is"
    assert not sites.only_reads(2)
    assert Sites({"lon": True}).may_vote(2), "all sites vote"


def test_a_rack_is_within_its_site(machine: StateMachine) -> None:
    def rack(said: str, site: str) -> str:
        machine.apply(SetListeners(3, [Advertised("k", "h", 1, said)]))
        machine.apply(SetSiteCommand(3, site))
        return machine.state.rack_of(3)

    assert rack("r2", "") == "r2"
    assert rack("r2", "lon") == "lon/r2"
    assert rack("lon/r2", "lon") == "lon/r2"
    assert rack("lon", "lon") == "lon"
    assert rack("", "lon") == "lon"


# --- who copies from whom -------------------------------------------------------------------------


def test_each_byte_crosses_the_line_once() -> None:
    gateway = copy_sources(3, [1, 0, 2, 4], EVERYWHERE, VOTERS)
    assert gateway == [1, 0, 2], "the gateway asks voters only, never who copies from it"
    last, *first = copy_sources(4, [1, 0, 2, 3], EVERYWHERE, VOTERS)
    assert set(first) == {3}, "the others ask the gateway"
    assert last == 1, "and the leader in the end"


def test_only_what_is_for_sites_that_only_read_is_gathered() -> None:
    assert EVERYWHERE.who_only_read(EVERYWHERE.members) == {3, 4}
    assert Sites().who_only_read([0, 1]) == LED_IN_LON.who_only_read([0, 1]) == frozenset()


def test_nobody_is_left_without_somebody_to_ask() -> None:
    assert copy_sources(4, [1, 0], EVERYWHERE, VOTERS) == [1, 0], "it is the gateway now"
    assert copy_sources(3, [4], EVERYWHERE, VOTERS) == [4], "the line is cut"
    assert copy_sources(0, [1, 2, 3], EVERYWHERE, VOTERS) == [1, 2, 3], "where votes are"
    assert copy_sources(4, [1, 3], Sites(), VOTERS) == [1, 3], "there are no sites"


# --- who leads ------------------------------------------------------------------------------------

LED_IN_LON = Sites({"lon": True, "par": True}, {0: "lon", 1: "par", 2: "par"}, leads=["lon"])


def test_leaders_are_wanted_in_sites_that_vote(machine: StateMachine) -> None:
    sites = machine.state.placement.sites
    assert sites.may_lead(0), "nothing is wanted"
    assert code(machine, SetSiteLeads("par", True, 3)) == "UNKNOWN_SITE"
    assert code(machine, SetSiteLeads("nyc", True, 3)) == "SITE_ONLY_READS"
    assert code(machine, SetSiteLeads("lon", True, 3)) == ""
    assert code(machine, SetSiteLeads("lon", True, 4)) == ""
    machine.apply(SetSiteCommand(0, "lon"))
    assert sites.leads == ["lon"]
    assert (sites.may_lead(0), sites.may_lead(1)) == (True, False)
    told = [event.text for event in machine.state.events.remembered if event.kind == "site-altered"]
    assert told == ["leaders should be in site 'lon' from now on"]
    assert code(machine, SetSiteLeads("lon", False, 5)) == ""
    assert sites.may_lead(1)


def test_a_site_that_only_reads_or_is_gone_leads_no_more(machine: StateMachine) -> None:
    sites = machine.state.placement.sites
    for change in (SetSiteVotes("lon", False, 4), RemoveSite("lon", 4)):
        machine.apply(SetSiteVotes("lon", True, 3))
        machine.apply(SetSiteLeads("lon", True, 3))
        assert code(machine, change) == ""
        assert sites.leads == []
    machine.apply(AddSite("lon", True, 5))
    machine.apply(SetSiteLeads("lon", True, 6))
    machine.apply(SetSiteCommand(3, "nyc"))
    machine.apply(PromoteSiteCommand("nyc", "a" * 16, 3, 1, 1, 7, ""))
    assert sites.leads == [], "whoever is left leads"


def test_leadership_moves_back_to_who_has_been_well_for_a_minute() -> None:
    place = LeaderPlace()
    assert place.look(1, LED_IN_LON, [0, 2], 0.0) == []
    assert place.look(1, LED_IN_LON, [0, 2], WELL_S - 1) == []
    assert place.look(1, LED_IN_LON, [0, 2], WELL_S) == [0]
    assert place.look(1, LED_IN_LON, [2], WELL_S + 1) == []
    assert place.look(1, LED_IN_LON, [0, 2], WELL_S + 2) == [], "it was away, and is new again"
    assert place.look(1, LED_IN_LON, [0, 2], 2 * WELL_S + 2) == [0]
    place.forget()
    assert place.look(1, LED_IN_LON, [0, 2], 2 * WELL_S + 3) == [], "it did not lead meanwhile"


def test_who_is_where_leaders_should_be_keeps_leadership() -> None:
    place = LeaderPlace()
    for now in (0.0, WELL_S, 2 * WELL_S):
        assert place.look(0, LED_IN_LON, [1, 2], now) == []
        assert place.look(1, Sites({"lon": True}, {0: "lon"}), [0], now) == []
    assert [patience(number, LED_IN_LON) for number in range(3)] == [1.0, 2.0, 2.0]


# --- agreement ------------------------------------------------------------------------------------


def test_a_member_agrees_to_one_promotion_at_a_time() -> None:
    first, second = Agreement(), Agreement()
    assert first.promise(3, 0.0), "to itself"
    assert second.promise(4, 0.0), "to itself"
    assert not first.promise(4, 1.0)
    assert not second.promise(3, 1.0), "of two at once none goes on"
    assert first.promise(3, 2.0), "the same one may ask again"
    assert first.promise(4, 2.0 + PROMISED_S)


def test_all_others_have_to_agree() -> None:
    asking, answers = Agreement(), list[str]()
    asking.ask("p", [4, 5], lambda: answers.append("told"))
    asking.told(4, "older", "")
    asking.told(9, "p", "")
    assert (asking.silent, answers) == ([4, 5], [])
    asking.told(4, "p", "")
    assert (asking.is_over, asking.silent) == (False, [5])
    asking.told(5, "p", "n5 has more")
    assert (asking.is_over, asking.refused) == (True, "n5 has more")
    assert len(answers) == 2, "whoever waits is told of each answer"
    asking.ask("p", [])
    assert (asking.is_over, asking.refused) == (True, "")


# --- lag ------------------------------------------------------------------------------------------


def test_lag_that_is_not_known_is_not_nothing() -> None:
    lags = SiteLags()
    assert lags.of_site("nyc", EVERYWHERE, 1.0) == UNKNOWN
    lags.say(3, SiteLag(700, 9), 1.0)
    lags.say(4, SiteLag(200, 2), 1.5)
    assert lags.of_site("nyc", EVERYWHERE, 2.0) == 200, "that of the best member"
    assert lags.of_member(3, 2.0) == (700, 9, 1.0)
    assert lags.of_site("nyc", EVERYWHERE, 1.2 + FRESH_S) == 200
    assert lags.of_member(3, 1.2 + FRESH_S).lag_ms == UNKNOWN
    assert lags.of_site("nyc", EVERYWHERE, 2.0 + FRESH_S) == UNKNOWN
    lags.keep({3: "n3"})
    assert lags.of_member(4, 1.5).records == UNKNOWN


class Here:
    """A node as far as its whereabouts go."""

    def __init__(self, machine: StateMachine, number: int, site: str) -> None:
        self.told: list[PeerMessage] = []
        self.proposed: list[AnyCommand] = []
        self.waits_since_ms: int | None = None
        self.lacks = 0
        self.silent_s = 0.0
        self.part = Whereabouts(
            number,
            site,
            machine=machine,
            propose=self._propose,
            behind=self,
            silent_s=lambda: self.silent_s,
            clock=cast(Any, self),
            send_all=self.told.append,
        )
        self._machine = machine

    def now(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 10_000

    def _propose(self, command: SetSiteCommand) -> asyncio.Task[None]:
        self.proposed.append(command)
        self._machine.apply(command)
        return cast("asyncio.Task[None]", self)

    def done(self) -> bool:
        """Of the task that proposes."""
        return True


def test_a_node_has_its_site_noted_and_tells_its_lag(machine: StateMachine) -> None:
    here = Here(machine, 3, "nyc")
    here.part.tick()
    assert here.proposed == [SetSiteCommand(3, "nyc")]
    here.waits_since_ms, here.lacks = 9_300, 12
    here.part.tick()
    assert here.told == [SiteLag(700, 12)]
    here.silent_s = SILENT_S + 1
    assert here.part.waits_ms == 3_000, "a leader that is silent may have more"
    assert len(here.proposed) == 1


def test_a_node_of_no_such_site_says_so(machine: StateMachine) -> None:
    here = Here(machine, 3, "nycc")
    here.part.tick()
    assert not here.proposed
    assert "the cluster has no site 'nycc' (it has: lon, nyc)" in here.part.trouble
    assert "only reads, and this node votes" in Here(machine, 0, "nyc").part.trouble
    assert Here(machine, 3, "").part.trouble == ""
