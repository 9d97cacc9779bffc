"""`samelog schema set` and `check`: another version of a topic's schema.

Invariant: what `check` says of a version is what the cluster decides by.
"""

from __future__ import annotations

from typing import IO

import click

from samelog.admin.answers import SchemaPage
from samelog.admin.client import ask, topic_schemas
from samelog.admin.requests import SetSchema
from samelog.cli.live_names import complete_topics
from samelog.cli.numbers import NEWEST_VERSION
from samelog.cli.output import (
    EXIT_FAILED,
    client_option,
    fail,
    json_option,
    print_json,
    print_table,
    report,
    wants_json,
)
from samelog.config.tables.client import ClientConfig
from samelog.format.texts import NotUtf8, decode_file
from samelog.typed.compatibility import Compatibility, problems_between, problems_reading
from samelog.typed.schema import BadSchema, Schema, parse_schema

file_argument = click.argument("file", type=click.File("rb"))


@click.command("set")
@click.argument("topic", shell_complete=complete_topics)
@file_argument
@click.option(
    "--follows",
    type=NEWEST_VERSION,
    metavar="VERSION",
    help="Only if this is the newest; else whatever is.",
)
@client_option
@json_option
def set_command(config: ClientConfig, *, topic: str, file: IO[bytes], follows: int | None) -> None:
    """Let the schema of TOPIC have another version, that of FILE (- is stdin).

    It must be compatible with the newest one as the topic's setting schema.compatibility says:
    none, backward (the default), forward or full. Who refuses records that do not fit says the
    setting schema.enforce: nobody (off), samelog's own publishers (publisher), or nodes too (node).

    \b
    Examples:
      samelog schema set ticks ticks.json --config client.toml
      samelog schema set ticks ticks.json --follows 3 --config client.toml
    """
    schema = _schema_of(file)
    if follows is None:
        follows = topic_schemas(config, topic).newest
    found = ask(config, SetSchema(topic, schema.text, follows))
    report(found, f"topic {found.topic}: version {found.version} of the schema")


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@file_argument
@client_option
@json_option
def check(config: ClientConfig, *, topic: str, file: IO[bytes]) -> None:
    """Say whether FILE (- is stdin) may be the next version of the schema of TOPIC.

    Says, too, which older versions a reader with it cannot read. Nothing is changed. The exit code
    is 1 if it may not be.

    \b
    Example:
      samelog schema check ticks ticks.json --config client.toml
    """
    schema = _schema_of(file)
    known = topic_schemas(config, topic)
    problems, unreadable = _judge(schema, known)
    if wants_json():
        found = {"topic": topic, "follows": known.newest, "compatibility": known.compatibility}
        print_json({**found, "problems": problems, "unreadable": unreadable})
    else:
        rows = [("set", problem) for problem in problems]
        rows += [(f"read version {n}", each) for n, found in unreadable.items() for each in found]
        print_table(("cannot", "because"), rows)
    if problems:
        click.get_current_context().exit(EXIT_FAILED)


def _judge(schema: Schema, known: SchemaPage) -> tuple[list[str], dict[int, list[str]]]:
    """Why it may not be the next version; why versions cannot be read with it."""
    versions = {each.version: parse_schema(each.schema) for each in known.versions}
    newest = versions.get(known.newest)
    mode = Compatibility(known.compatibility)
    problems = [] if newest is None else problems_between(mode, schema, newest)
    reading = {version: problems_reading(schema, each) for version, each in versions.items()}
    return problems, {version: found for version, found in reading.items() if found}


def _schema_of(file: IO[bytes]) -> Schema:
    try:
        return parse_schema(decode_file(file.read()))
    except (BadSchema, NotUtf8) as error:
        fail(f"{file.name}: {error}")
