"""`samelog context`: clients' configurations by name.

Invariant: a configuration gets a name only if it can be used now.
"""

from __future__ import annotations

import click

from samelog.cli.command_group import CommandGroup
from samelog.cli.contexts import check_name, contexts_file, read_contexts, write_contexts
from samelog.cli.live_names import complete_contexts
from samelog.cli.output import json_option, print_json, print_table, report, wants_json
from samelog.config.document import absolute_place, shown_place


@click.group(cls=CommandGroup)
def command() -> None:
    """Give names to clients' configurations, and choose the one that counts.

    The current context counts for every command as SAMELOG_CONFIG does, unless that variable is
    set or --config is given. `samelog --context NAME …` uses another one once.

    \b
    Examples:
      samelog context add prod /etc/samelog/client.toml
      samelog context add test https://config.example/samelog/test.toml
      samelog context use prod
      samelog --context test topic list
    """


@command.command()
@click.argument("name")
@click.argument("place", metavar="FILE|URL")
@json_option
def add(*, name: str, place: str) -> None:
    """Call the client.toml at FILE or URL by NAME; the first one becomes the current one.

    \b
    Example:
      samelog context add prod /etc/samelog/client.toml
    """
    from samelog.config.load import load_client

    check_name(name)
    load_client(place)
    contexts = read_contexts().having(name, absolute_place(place))
    write_contexts(contexts)
    said = f"context {name} is {shown_place(place)}; the current one is {contexts.current}"
    report({"context": name, "current": contexts.current}, said)


@command.command()
@click.argument("name", shell_complete=complete_contexts)
@json_option
def use(*, name: str) -> None:
    """Make NAME the current context; '' for none.

    \b
    Examples:
      samelog context use prod
      samelog context use ''
    """
    write_contexts(read_contexts().using(name))
    report({"current": name}, f"the current context is {name or 'none'}")


@command.command()
@click.argument("name", shell_complete=complete_contexts)
@json_option
def remove(*, name: str) -> None:
    """Forget NAME. The file that it names stays.

    \b
    Example:
      samelog context remove test
    """
    write_contexts(read_contexts().without(name))
    report({"removed": name}, f"forgot context {name}; {contexts_file()} has the others")


@command.command("list")
@json_option
def list_command() -> None:
    """List all contexts.

    \b
    Example:
      samelog context list
    """
    contexts = read_contexts()
    rows = [
        {"context": name, "current": name == contexts.current, "place": shown_place(place)}
        for name, place in sorted(contexts.places.items())
    ]
    if wants_json():
        print_json(rows)
        return
    print_table(
        ("context", "current", "configuration"),
        [(row["context"], "yes" if row["current"] else "", row["place"]) for row in rows],
    )
