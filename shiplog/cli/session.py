"""`shiplog session`: what an administrator does about publishers' sessions.

Invariant: a retired session's old directory can never ship another byte.
"""

from __future__ import annotations

import click

from shiplog.cli.admin_client import request
from shiplog.cli.output import client_option, json_option, print_json, talk
from shiplog.config.types import ClientConfig
from shiplog.wire.admin import RetireSession, SessionRetired


@click.group()
def command() -> None:
    """Look after publishers' sessions.

    \b
    Example:
      shiplog session retire ewr --config client.toml
    """


@command.command()
@click.argument("name")
@client_option
@json_option
def retire(config: ClientConfig, name: str, as_json: bool) -> None:
    """Fence the session NAME, whose directory is lost for good.

    A new directory may then take the name. What the lost one had not shipped is lost with it;
    should it come back after all, it is refused.

    \b
    Example:
      shiplog session retire ewr --config client.toml
    """
    session = request(config, RetireSession(name), SessionRetired).session
    if as_json:
        print_json({"session": session})
    else:
        talk(f"retired session {session}")
