"""`samelog session`: list publishers' sessions, and retire those that are lost.

Invariant: a retired session's old directory can never ship another byte.
"""

from __future__ import annotations

import click

from samelog.admin.answers import SessionInfo
from samelog.admin.client import ask
from samelog.admin.requests import GetStatus, RetireSession
from samelog.cli.command_group import CommandGroup
from samelog.cli.confirmation import check_confirmed, confirm_option
from samelog.cli.live_names import complete_sessions
from samelog.cli.output import (
    client_option,
    json_option,
    print_json,
    print_table,
    report,
    wants_json,
)
from samelog.cli.watching import watchable
from samelog.config.tables.client import ClientConfig


@click.group(cls=CommandGroup)
def command() -> None:
    """Look after publishers' sessions.

    \b
    Examples:
      samelog session list --config client.toml
      samelog session retire ewr --confirm ewr --config client.toml
    """


@command.command("list")
@client_option
@json_option
@watchable
def list_command(config: ClientConfig) -> None:
    """List all sessions: who owns them, their newest run, and what is not merged yet.

    \b
    Example:
      samelog session list --config client.toml
    """
    sessions = sorted(ask(config, GetStatus()).sessions, key=lambda each: each.session)
    if wants_json():
        print_json(sessions)
        return
    columns = ("session", "identity", "run", "open", "unmerged bytes", "dedup id")
    print_table(columns, [_row(session) for session in sessions])


def _row(session: SessionInfo) -> tuple[object, ...]:
    is_open = "yes" if session.is_open else "no"
    name = session.session, session.identity, session.run
    return (*name, is_open, session.unmerged_bytes, session.dedup_id)


@command.command()
@click.argument("name", shell_complete=complete_sessions)
@confirm_option("NAME")
@client_option
@json_option
def retire(config: ClientConfig, *, name: str, confirm: str | None) -> None:
    """Fence the session NAME, whose directory is lost for good.

    A new directory may then take the name. What the lost one had not shipped is lost with it;
    should it come back after all, it is refused.

    \b
    Example:
      samelog session retire ewr --confirm ewr --config client.toml
    """
    loss = f"Session {name} would be fenced: records that its directory has not shipped are lost"
    check_confirmed(confirm, name, loss)
    session = ask(config, RetireSession(name, confirm=name)).session
    report({"session": session}, f"retired session {session}")
