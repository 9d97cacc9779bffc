"""`samelog site promote`: a site that only read goes on alone, when the first one is lost.

Invariant: what may be lost is said first; without the confirmation nothing is changed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import click

from samelog.admin.client import all_nodes, ask_each, ask_node
from samelog.admin.errors import AdminError
from samelog.admin.site_answers import PartitionStanding, PromotionBegun, Standing
from samelog.admin.site_requests import GetStanding, PromoteSite
from samelog.cli.confirmation import check_confirmed, confirm_option
from samelog.cli.live_names import complete_nodes, complete_sites
from samelog.cli.numbers import TIME_S
from samelog.cli.output import (
    client_option,
    fail,
    json_option,
    print_json,
    report,
    talk,
    waiting,
    wants_json,
)
from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address
from samelog.format.nouns import counted

POLL_S = 0.5


class Survivors(NamedTuple):
    """What the nodes that answer have: of the site, the best to go on with first; and names of
    others.
    """

    there: Sequence[tuple[Address, Standing]]
    others: Sequence[str]

    @property
    def newest(self) -> tuple[Address, Standing]:
        """Who has the newest entry goes on."""
        return self.there[0]

    @property
    def partitions(self) -> dict[str, list[PartitionStanding]]:
        """What goes on, by the node that has it: the newest first, and what others have more, of
        data groups.
        """
        found: dict[str, list[PartitionStanding]] = {}
        named = set[tuple[str, int]]()
        for _, each in self.there:
            own = [part for part in each.partitions if (part.topic, part.partition) not in named]
            named.update((part.topic, part.partition) for part in own)
            found[each.node] = own
        return found


@click.command("promote")
@click.argument("site", shell_complete=complete_sites)
@confirm_option("CLUSTER")
@click.option(
    "--without",
    multiple=True,
    metavar="NODE",
    shell_complete=complete_nodes,
    help="A node there that is lost, too.",
)
@click.option(
    "--first-site-is-down", is_flag=True, help="I know that the others do not run any more."
)
@click.option("--wait", "wait_s", type=TIME_S, default=60.0, show_default=True, metavar="SECONDS")
@client_option
@json_option
def promote(
    config: ClientConfig,
    *,
    site: str,
    confirm: str | None,
    without: Sequence[str],
    first_site_is_down: bool,
    wait_s: float,
) -> None:
    """Let SITE go on alone, when the sites that voted are lost.

    RECORDS THAT WERE ACKNOWLEDGED MAY BE LOST: those that had not come to SITE. Without --confirm
    it says what is there, and changes nothing. Afterwards the members of SITE vote, and nobody
    else. The cluster has another id from then on. Nodes of before that come back are told so, and
    end; what they have is kept in their directories.

    Stop the others if you can. If only the line is cut, both sites would acknowledge.

    \b
    Examples:
      samelog site promote nyc --config client.toml
      samelog site promote nyc --config client.toml --first-site-is-down --confirm production
    """
    found = _look(config, site)
    if confirm != config.cluster:
        _refuse(config, found, site, confirm)
    address, newest = found.newest
    order = PromoteSite(
        site,
        newest.entry,
        newest.term,
        tuple(without),
        first_site_is_down,
        confirm=config.cluster,
    )
    try:
        begun = ask_node(config, address, order, name=newest.node)
    except AdminError as error:
        fail(str(error))
    left = _wait(config, found, begun, without, wait_s)
    done = {"site": site, "found": [each for _, each in found.there], "done": True}
    report(
        {**done, "cluster_id": begun.cluster_id, "waiting": sorted(left)},
        f"site {site} is promoted: {newest.node} leads, and samelog status keeps the event",
    )
    if left:
        talk(f"these have not followed yet: {', '.join(sorted(left))}; see their logs")
    parts = (part for parts in found.partitions.values() for part in parts)
    if any(part.known_offset > part.end_offset for part in parts):
        talk("publishers may still have what is missing; else: samelog recover void")


def _look(config: ClientConfig, site: str) -> Survivors:
    known = _standings(config)
    there = [each for each in known if each[1].site == site]
    if not there:
        fail(f"No node of site {site!r} answers. {_answering(site, known)}")
    there.sort(key=lambda each: (-each[1].term, -each[1].entry, each[1].node))
    return Survivors(there, [each.node for _, each in known if each.site != site])


def _answering(site: str, known: Sequence[tuple[Address, Standing]]) -> str:
    """Describe which nodes answer, and what to do."""
    if known and not any(each.site for _, each in known):
        return "No node that answers has a site. Give nodes sites with: samelog site add --help"
    names = ", ".join(f"{each.node} of site {each.site or 'none'}" for _, each in known)
    return f"Answering: {names or 'no node'}. Name a node of {site!r} in nodes in client.toml"


def _standings(config: ClientConfig) -> list[tuple[Address, Standing]]:
    """The standing of each node that answers, also of nodes that client.toml does not name."""
    nodes = all_nodes(config)
    answers = zip(nodes, ask_each(config, GetStanding(), nodes), strict=True)
    return [(where, said) for (where, _), said in answers if isinstance(said, Standing)]


def _refuse(config: ClientConfig, found: Survivors, site: str, confirm: str | None) -> None:
    if wants_json():
        rows = [each for _, each in found.there]
        print_json({"site": site, "found": rows, "done": False})
    else:
        _describe(found)
    loss = "RECORDS THAT OTHER SITES ACKNOWLEDGED AFTER THIS WOULD BE LOST"
    check_confirmed(confirm, config.cluster, loss)


def _describe(found: Survivors) -> None:
    for _, each in found.there:
        talk(
            f"{each.node}: entry {each.entry} of term {each.term}, of which {each.committed} are "
            f"known to be committed; it heard of a leader {each.silent_s:.0f} s ago"
        )
    _, newest = found.newest
    talk(f"{newest.node} would go on, and the others of the site with it. It has:")
    for node, parts in found.partitions.items():
        if node != newest.node and parts:
            talk(f"{node} has more, of data groups:")
        for part in parts:
            lacks = part.known_offset - part.end_offset
            text = f"  {part.topic}-{part.partition}: next offset {part.end_offset}"
            missing = f"; KNOWN TO BE MISSING: {counted(lacks, 'record')}" if lacks > 0 else ""
            talk(f"{text}{missing}")
    if newest.lost_groups:
        groups = ", ".join(map(str, newest.lost_groups))
        talk(f"  NOTHING of data groups {groups}: their partitions would be lost")
    if found.others:
        talk(f"nodes of other sites that answer: {', '.join(found.others)}")
    talk(f"What others acknowledged in the last {newest.silent_s:.0f} s is not known here")


def _wait(
    config: ClientConfig,
    found: Survivors,
    begun: PromotionBegun,
    without: Sequence[str],
    wait_s: float,
) -> set[str]:
    """Wait until all that answered have followed: who has not."""
    left = {each.node: address for address, each in found.there if each.node not in without}
    deadline, all_of_them = time.monotonic() + wait_s, len(left)
    with waiting("promoting") as tell:
        while left and time.monotonic() < deadline:
            for node, address in tuple(left.items()):
                if _has_followed(config, node, address, begun):
                    del left[node]
            tell(all_of_them - len(left), all_of_them, "nodes of the site that have followed")
            if left:
                time.sleep(POLL_S)
    return set(left)


def _has_followed(config: ClientConfig, node: str, address: Address, begun: PromotionBegun) -> bool:
    try:
        now = ask_node(config, address, GetStanding(), name=node)
    except AdminError:
        return False
    is_first = node == begun.node
    return now.cluster_id == begun.cluster_id and (now.leads or not is_first)
