"""Sites of simulated clusters: who is in which, and who reads there in the end."""

from __future__ import annotations

import random
from collections import Counter

from samelog.placement.members import MemberStates
from samelog.placement.table import PlacementTable
from samelog.placement.values import PlacedGroup
from tests.placement.cluster import Harm


def put_in_site(table: PlacementTable, number: int, chance: random.Random) -> None:
    """A new member, of a cluster with sites; the first one may vote."""
    sites = table.placement.sites
    if sites.votes:
        known = ["lon", "lon", "lon", "nyc", "tok", ""] if number > 1 else ["lon"]
        sites.members[number] = chance.choice(known)


def turn_site(table: PlacementTable, chance: random.Random) -> None:
    """A site votes from now on, or only reads; or a member is moved to another one."""
    sites = table.placement.sites
    if chance.random() < 0.5:
        sites.votes["nyc"] = not sites.votes["nyc"]
    else:
        sites.members[chance.choice(sorted(table.members))] = "tok"


def check_readers(table: PlacementTable, states: MemberStates, group: PlacedGroup) -> None:
    """One in each site that only reads and has somebody who may, and none elsewhere."""
    sites, there = table.placement.sites, Counter[str]()
    for each in group.readers:
        site = sites.members.get(each.member, "")
        if sites.votes.get(site, True):
            raise Harm(f"{group} is read where it need not be, by {each.member}")
        there[site] += 1
    for site in table.sites_to_read_in:
        able = set(states.may_read(site)) - set(group.members)
        if there[site] > 1 or (able and not there[site]):
            raise Harm(f"{group} has {there[site]} to read in {site}: {able}")
