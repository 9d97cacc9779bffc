"""`samelog site`: where the members of a cluster are, and which of these places vote.

Invariant: a change is reported as done only when a majority of the nodes has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from samelog.admin.client import ask
from samelog.admin.site_answers import SiteInfo, SiteRows
from samelog.admin.site_requests import (
    AlterSite,
    CreateSite,
    DropSite,
    LetSiteLead,
    ListSites,
)
from samelog.cli.command_group import CommandGroup
from samelog.cli.commands.placing.promote import promote
from samelog.cli.live_names import complete_sites
from samelog.cli.output import (
    client_option,
    json_option,
    print_json,
    print_table,
    talk,
    wants_json,
)
from samelog.cli.watching import watchable
from samelog.config.tables.client import ClientConfig

COLUMNS = ("site", "members vote", "node", "role", "lag", "records behind")


@click.group(cls=CommandGroup)
def command() -> None:
    """List, add, alter, remove and promote sites: the places in which a cluster has nodes.

    A node says with `[node] site` where it is. Members of a site that was added with --reads-only
    never vote: they have copies for those who are near them.

    \b
    Examples:
      samelog site add lon --config client.toml
      samelog site add nyc --reads-only --config client.toml
      samelog site list --config client.toml
      samelog site lead lon --config client.toml
      samelog site promote nyc --config client.toml
    """


@command.command("list")
@client_option
@json_option
@watchable
def list_command(config: ClientConfig) -> None:
    """List sites, who is there, and how far they are behind.

    The lag is how long the oldest record has waited that a node lacks, in the node's own words; a
    question mark while it says nothing.

    \b
    Example:
      samelog site list --config client.toml --json
    """
    _show(ask(config, ListSites()))


@command.command()
@click.argument("name")
@click.option("--reads-only", is_flag=True, help="Its members never vote.")
@client_option
@json_option
def add(config: ClientConfig, *, name: str, reads_only: bool) -> None:
    """Let the cluster have the site NAME.

    \b
    Examples:
      samelog site add lon --config client.toml
      samelog site add nyc --reads-only --config client.toml
    """
    _show(ask(config, CreateSite(name, not reads_only)))


@command.command()
@click.argument("name", shell_complete=complete_sites)
@client_option
@json_option
def remove(config: ClientConfig, *, name: str) -> None:
    """Let the cluster have the site NAME no more. It must have no members.

    \b
    Example:
      samelog site remove nyc --config client.toml
    """
    _show(ask(config, DropSite(name)))


@command.command()
@click.argument("name", shell_complete=complete_sites)
@click.option("--votes/--reads-only", required=True, help="Whether its members may vote.")
@client_option
@json_option
def alter(config: ClientConfig, *, name: str, votes: bool) -> None:
    """Let members of the site NAME vote from now on, or only read.

    Nodes that were added to be voters become some once they have caught up. A site whose members
    vote cannot become one that only reads: remove its voters first.

    \b
    Example:
      samelog site alter lon --votes --config client.toml
    """
    _show(ask(config, AlterSite(name, votes)))


@command.command()
@click.argument("name")
@click.option("--off", is_flag=True, help="Leaders need not be there any more.")
@client_option
@json_option
def lead(config: ClientConfig, *, name: str, off: bool) -> None:
    """Have leaders in the site NAME, and in others that were named so; without any, anywhere.

    If all voters there are lost, others lead. Leadership moves back once a voter in these sites has
    been well for a minute.

    \b
    Examples:
      samelog site lead lon --config client.toml
      samelog site lead lon --off --config client.toml
    """
    _show(ask(config, LetSiteLead(name, not off)))


command.add_command(promote)


def _show(found: SiteRows) -> None:
    if wants_json():
        print_json(found)
        return
    print_table(COLUMNS, [row for site in found.sites for row in _rows(site)])
    if found.elsewhere and found.sites:
        talk(f"in no site: {', '.join(found.elsewhere)}")


def _rows(site: SiteInfo) -> Sequence[tuple[str, ...]]:
    votes = ("yes, lead" if site.leads else "yes") if site.votes else "no"
    rows = [
        (
            site.name,
            votes,
            each.node,
            "voter" if each.voter else "learner",
            lag_text(each.lag_ms),
            "?" if each.records < 0 else str(each.records),
        )
        for each in site.members
    ]
    return rows or [(site.name, votes, "-", "-", "-", "-")]


def lag_text(lag_ms: int) -> str:
    """Milliseconds for people."""
    if lag_ms < 0:
        return "?"
    return f"{lag_ms} ms" if lag_ms < 10_000 else f"{lag_ms / 1000:.0f} s"
