"""`samelog config check|show|schema`: what configuration files say, and may say.

Invariant: what `check` accepts, nodes and clients accept in the same environment.
"""

from __future__ import annotations

import json

import click

from samelog.cli.command_group import CommandGroup
from samelog.cli.output import json_option, print_json, print_table, talk, wants_json
from samelog.config.document import ConfigDocument, Setting, parse_toml, read_file, settings
from samelog.config.load import (
    client_config,
    mirror_config,
    node_config,
    read_client,
    read_mirror,
    read_node,
)
from samelog.config.schema.render import json_schema
from samelog.config.tables.client import CLIENT_FILE
from samelog.config.tables.mirror import MIRROR_FILE
from samelog.config.tables.node import NODE_FILE
from samelog.config.values import is_url

KINDS = ("node", "client", "mirror")
NODES_ONLY = ("node", "peers", "grants")
MIRRORS_ONLY = ("destination",)
HIDDEN = "(a secret)"

file_argument = click.argument("file", type=click.Path(dir_okay=False))
kind_option = click.option(
    "--kind", type=click.Choice(KINDS), help="Whose file it is; else told by its tables."
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Check and show configuration files: of nodes, of clients (publishers, subscribers, sidecars,
    administrators) and of mirrors. docs/configuration.md has all keys.

    \b
    Examples:
      samelog config check /etc/samelog/node.toml
      SAMELOG_NODE_FSYNC=interval samelog config show /etc/samelog/node.toml
      samelog config schema node > node.schema.json
    """


@command.command()
@file_argument
@kind_option
@json_option
def check(file: str, kind: str | None) -> None:
    """Check FILE (of a client: or an https:// URL), with the variables of this environment, and
    what the files that it names contain: certificates and keys that belong together, count now and
    are for this process, passwords, the archiving policy. Nothing is written.

    \b
    Examples:
      samelog config check /etc/samelog/node.toml
      samelog config check client.toml --json
      samelog config check mirror.toml
      samelog config check https://config.example/samelog/ewr.toml
    """
    found, document = _read(file, kind, check_contents=True)
    if wants_json():
        print_json({"config": file, "kind": found, "valid": True})
        return
    talk(f"{file}: valid, of a {found}")
    for name, variable in document.variables.items():
        talk(f"  {name} is from {variable}")


@command.command()
@file_argument
@kind_option
@json_option
def show(file: str, kind: str | None) -> None:
    """Show every key of FILE as it counts, and where that is from: the file, a variable of the
    environment, or the default (-: the key is left out).

    \b
    Examples:
      samelog config show /etc/samelog/node.toml
      samelog config show client.toml --json
    """
    _, document = _read(file, kind)
    found = settings(document)
    if wants_json():
        print_json([_plain(setting) for setting in found])
        return
    rows = [(each.name, _shown(each), each.source) for each in found]
    print_table(("key", "value", "from"), rows)


@command.command("schema")
@click.argument("kind", type=click.Choice(KINDS))
def schema_command(kind: str) -> None:
    """Print the JSON Schema of a node's, a client's or a mirror's file, for editors.

    \b
    Example:
      samelog config schema node > node.schema.json
    """
    spec = {"node": NODE_FILE, "client": CLIENT_FILE, "mirror": MIRROR_FILE}[kind]
    print_json(json_schema(spec, f"samelog: the configuration of a {kind}"))


def _read(
    file: str, kind: str | None, *, check_contents: bool = False
) -> tuple[str, ConfigDocument]:
    """Whose file it is, and what it says, checked. Raises ConfigError, ConfigurationError."""
    found = kind or ("client" if is_url(file) else _kind_of(file))
    from samelog.cli import config_contents as contents

    if found == "node":
        document = read_node(file)
        node = node_config(document)
        if check_contents:
            contents.check_node(node)
    elif found == "mirror":
        document = read_mirror(file)
        mirror = mirror_config(document)
        if check_contents:
            contents.check_mirror(mirror)
    else:
        document = read_client(file)
        client = client_config(document)
        if check_contents:
            contents.check_client(client)
    return found, document


def _kind_of(file: str) -> str:
    values = parse_toml(read_file(file))
    if any(name in values for name in NODES_ONLY):
        return "node"
    return "mirror" if any(name in values for name in MIRRORS_ONLY) else "client"


def _plain(setting: Setting) -> dict[str, object]:
    return {
        "key": setting.name,
        "value": HIDDEN if _is_hidden(setting) else setting.value,
        "from": setting.source,
        "reloaded": setting.key.reload.value,
    }


def _is_hidden(setting: Setting) -> bool:
    return setting.key.secret and setting.value is not None


def _shown(setting: Setting) -> str:
    if setting.value is None:
        return "-"
    return HIDDEN if _is_hidden(setting) else json.dumps(setting.value, ensure_ascii=False)
