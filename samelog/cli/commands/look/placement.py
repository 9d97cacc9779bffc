"""`samelog placement`: which groups there are, and which partition is where.

Invariant: nothing is changed.
"""

from __future__ import annotations

from collections.abc import Set

import click
from msgspec.structs import replace

from samelog.admin.answers import GroupPlacement, PlacementStatus
from samelog.admin.client import all_nodes, ask, ask_each
from samelog.admin.placement_requests import GetPlacement
from samelog.cli.output import client_option, json_option, part, print_json, print_table, wants_json
from samelog.cli.watching import watchable
from samelog.config.tables.client import ClientConfig
from samelog.format.nouns import counted


@click.command()
@client_option
@json_option
@watchable
def command(config: ClientConfig) -> None:
    """Show the Raft groups with their members, and the group of each partition.

    Group 0 is on all nodes; a topic that asked for fewer copies has its partitions in other groups.
    Copies that are missing are made when there are nodes for them.
    What members lack, in entries, is told by the node that leads a group: if it does not answer,
    there is a dash.

    \b
    Examples:
      samelog placement --config client.toml
      samelog placement --config client.toml --json
    """
    found = _with_lags(config, ask(config, GetPlacement()))
    if wants_json():
        print_json(found)
    else:
        _print(found)


def _with_lags(config: ClientConfig, found: PlacementStatus) -> PlacementStatus:
    """What members lack is known to who leads each group."""
    unknown = (each for each in found.groups if not each.lag and len(each.members) > 1)
    told = _lags_told(config, {each.leader for each in unknown})
    groups = (replace(each, lag=each.lag or told.get(each.group, {})) for each in found.groups)
    return replace(found, groups=tuple(groups))


def _lags_told(config: ClientConfig, leaders: Set[str | None]) -> dict[int, dict[str, int]]:
    """By those who lead, of each group."""
    if not leaders:
        return {}
    asked = [node for node in all_nodes(config) if node[1] is None or node[1] in leaders]
    answers = ask_each(config, GetPlacement(), asked)
    told = (answer.groups for answer in answers if isinstance(answer, PlacementStatus))
    return {each.group: each.lag for groups in told for each in groups if each.lag}


def _print(found: PlacementStatus) -> None:
    print_table(
        ("group", "leader", "members", "lag"),
        [(each.group, each.leader or "-", _members(each), _lag(each)) for each in found.groups],
        title=f"drained nodes: {', '.join(found.drained)}" if found.drained else None,
    )
    for warning in found.warnings:
        click.echo(f"warning: {warning}")
    if found.default_copies:
        part()
        copies = counted(found.default_copies, "copy", "copies")
        click.echo(f"Topics created without a number of copies get {copies}.")
    part()
    print_table(
        ("topic", "partition", "group", "leader", "replicas"),
        [
            (each.topic, each.partition, each.group, each.leader or "-", ", ".join(each.replicas))
            for each in found.partitions
        ],
    )


def _members(group: GroupPlacement) -> str:
    """Their names, how many are missing, who only reads, and what the group has yet to do."""
    names, missing = ", ".join(group.members), group.copies - len(group.members)
    if missing > 0 and group.group:
        names = f"{names} ({missing} missing)"
    if group.readers:
        names = f"{names}; read on {', '.join(group.readers)}"
    return f"{names} (resetting)" if group.is_resetting else names


def _lag(group: GroupPlacement) -> str:
    return ", ".join(f"{name} {lag}" for name, lag in group.lag.items()) or "-"
