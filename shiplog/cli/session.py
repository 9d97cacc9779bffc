"""`shiplog session`: what an operator may decide about a publisher's session.

Invariant: a directory that was retired can never publish under its session again.
"""

from __future__ import annotations

import click

from shiplog.cli.admin_client import request
from shiplog.cli.output import client_option, json_option, print_json, talk
from shiplog.config.types import ClientConfig
from shiplog.wire.admin import RetireSession, SessionRetired


@click.group()
def command() -> None:
    """Retire the session of a publisher whose directory is lost.

    \b
    Example:
      shiplog session retire feed-1 --config client.toml
    """


@command.command()
@click.argument("name")
@client_option
@json_option
def retire(config: ClientConfig, name: str, as_json: bool) -> None:
    """Fence the directory that has the session NAME, so that another one may take the name over.

    What the old directory had not shipped is given up: its later bytes never count.

    \b
    Example:
      shiplog session retire feed-1 --config client.toml
    """
    retired = request(config, RetireSession(name), SessionRetired).session
    if as_json:
        print_json({"session": retired, "retired": True})
    else:
        talk(f"retired the directory of session {retired}")
