"""`shiplog archive`: what is archived next, and why.

Invariant: nothing here archives anything.
"""

from __future__ import annotations

import click

from shiplog.cli.output import client_option, json_option, print_json, print_table, talk
from shiplog.config.types import ClientConfig
from shiplog.replicator.admin_client import request
from shiplog.wire.admin_archive import ArchivePlan, PlanArchive


@click.group()
def command() -> None:
    """Look at archiving: old segments become empty files, by the policy.

    \b
    Example:
      shiplog archive plan --config client.toml
    """


@command.command()
@client_option
@json_option
def plan(config: ClientConfig, as_json: bool) -> None:
    """Show what the next round would archive, and which rule takes it, without doing it.

    \b
    Examples:
      shiplog archive plan --config client.toml
      shiplog archive plan --config client.toml --json
    """
    found = request(config, PlanArchive(), ArchivePlan)
    if as_json:
        print_json(found)
        return
    talk(f"policy: {found.policy or 'none; only settings of topics count'}")
    if found.problem:
        talk(f"not taken: {found.problem}")
    for text in found.differing:
        talk(f"policies differ: {text}")
    for name in found.held:
        talk(f"{name}: a consumer group holds more")
    columns = ("topic", "partition", "from", "to", "files", "bytes", "rule")
    print_table(columns, found.planned)
