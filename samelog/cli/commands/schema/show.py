"""`samelog schema show` and `history`: the versions of a topic's schema.

Invariant: what `show` prints can be set again, and is the same version then.
"""

from __future__ import annotations

import json

import click

from samelog.admin.answers import SchemaInfo
from samelog.admin.client import ask, topic_schemas
from samelog.admin.requests import ListSchemas
from samelog.cli.live_names import complete_topics
from samelog.cli.numbers import VERSION
from samelog.cli.output import (
    client_option,
    fail,
    json_option,
    print_json,
    print_table,
    utc,
    wants_json,
)
from samelog.cli.watching import watchable
from samelog.config.tables.client import ClientConfig
from samelog.typed.versions import DIGEST_CHARACTERS


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--version", type=VERSION, help="This one; else the newest.")
@client_option
@json_option
def show(config: ClientConfig, *, topic: str, version: int | None) -> None:
    """Print the schema of TOPIC, as JSON.

    \b
    Examples:
      samelog schema show ticks --config client.toml
      samelog schema show ticks --version 2 --config client.toml
    """
    newest = ask(config, ListSchemas(topic)).newest
    if not newest:
        fail(f"topic {topic} has no schema")
    wanted = version or newest
    found = ask(config, ListSchemas(topic, wanted)).versions
    if not found:
        fail(f"topic {topic} has the versions 1 to {newest} of its schema")
    print_json(json.loads(found[0].schema))


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@client_option
@json_option
@watchable
def history(config: ClientConfig, *, topic: str) -> None:
    """List the versions of the schema of TOPIC, oldest first.

    \b
    Example:
      samelog schema history ticks --config client.toml
    """
    found = topic_schemas(config, topic)
    if wants_json():
        print_json(found.versions)
        return
    columns = ("version", "set", "format", "columns", "fingerprint")
    settings = f"schema.compatibility={found.compatibility}, schema.enforce={found.enforce}"
    rows = [_row(each) for each in found.versions]
    print_table(columns, rows, title=f"{found.topic}: {settings}")


def _row(each: SchemaInfo) -> tuple[object, ...]:
    schema = json.loads(each.schema)
    columns = ", ".join(f"{column['name']} {column['type']}" for column in schema["columns"])
    fingerprint = each.fingerprint[:DIGEST_CHARACTERS]
    return each.version, utc(each.set_ms), schema["format"], columns, fingerprint
