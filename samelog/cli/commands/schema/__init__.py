"""`samelog schema`: versions of the schemas of topics."""

from __future__ import annotations

import click

from samelog.cli.command_group import CommandGroup
from samelog.cli.commands.schema import change, rows, show


@click.group(cls=CommandGroup)
def command() -> None:
    """Set, show and check the schema of a topic: what its values are.

    A schema is a file of JSON, as in {"format": "json", "columns": [{"name": "price", "type":
    "float64"}]}: docs/typed.md. Each version that is set follows the newest one, and stays.

    \b
    Examples:
      samelog schema check ticks ticks.json --config client.toml
      samelog schema set ticks ticks.json --config client.toml
      samelog schema history ticks --config client.toml
      samelog schema rows ticks --where "price > 100" --config client.toml
    """


for each in (change.set_command, change.check, show.show, show.history, rows.rows_command):
    command.add_command(each)
