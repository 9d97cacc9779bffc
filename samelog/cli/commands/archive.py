"""`samelog archive`: what is archived next, and why.

Invariant: nothing here archives anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter

import click
from msgspec.structs import astuple, replace

from samelog.admin.answers import ArchivePlan, CopyProgress
from samelog.admin.client import ask, ask_each
from samelog.admin.errors import AdminError
from samelog.admin.requests import PlanArchive
from samelog.cli.command_group import CommandGroup
from samelog.cli.output import client_option, json_option, print_json, print_table, talk, wants_json
from samelog.cli.watching import watchable
from samelog.config.tables.client import ClientConfig

_PLACE = attrgetter("topic", "partition")


@click.group(cls=CommandGroup)
def command() -> None:
    """Look at archiving: old segments become empty files, by the policy.

    \b
    Example:
      samelog archive plan --config client.toml
    """


@command.command()
@client_option
@json_option
@watchable
def plan(config: ClientConfig) -> None:
    """Show what the next round would archive, and which rule takes it, without doing it.

    \b
    Examples:
      samelog archive plan --config client.toml
      samelog archive plan --config client.toml --json
    """
    found = ask(config, PlanArchive())
    others = ask_each(config, PlanArchive(data_groups=True)) if found.data_groups else []
    answered = [each for each in others if not isinstance(each, AdminError)]
    found = _with_groups(found, answered)
    if wants_json():
        print_json(found)
        return
    _talk_of_policy(found)
    for error in others:
        if isinstance(error, AdminError):
            talk(f"data groups that are led there are not shown: {error}")
    for each in (found, *answered):
        _talk_of_copies(each.copies)
    columns = ("topic", "partition", "from", "to", "files", "bytes", "rule")
    print_table(columns, [astuple(each) for each in found.planned])


def _with_groups(found: ArchivePlan, others: Sequence[ArchivePlan]) -> ArchivePlan:
    """What is planned in all groups."""
    planned = chain(found.planned, *(each.planned for each in others))
    held = chain(found.held, *(each.held for each in others))
    return replace(found, planned=tuple(sorted(planned, key=_PLACE)), held=tuple(held))


def _talk_of_policy(found: ArchivePlan) -> None:
    talk(f"policy: {found.policy or 'none; only settings of topics count'}")
    if found.problem:
        talk(f"refused: {found.problem}")
    for text in found.differing:
        talk(f"policies differ: {text}")
    for name in found.held:
        talk(f"{name}: a consumer group holds more")


def _talk_of_copies(copies: CopyProgress) -> None:
    if copies.target:
        counts = f"{copies.copied} copied, {copies.waiting} wait"
        talk(f"segments are copied to {copies.target} first: {counts}")
    if copies.file:
        percent = 100 * copies.done_bytes // max(1, copies.total_bytes)
        talk(f"copying {copies.file}: {percent} %")
    if copies.problem:
        talk(f"not archived, as it is not copied: {copies.problem}")
