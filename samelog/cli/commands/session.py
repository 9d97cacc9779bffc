"""`samelog session`: list publishers' sessions, retire lost ones, decide on held records.

Invariant: a retired session's old directory can never ship another byte.
"""

from __future__ import annotations

import click

from samelog.admin.answers import SessionDecided, SessionInfo
from samelog.admin.client import ask
from samelog.admin.requests import ContinueSession, DiscardSession, GetStatus, RetireSession
from samelog.cli.command_group import CommandGroup
from samelog.cli.confirmation import check_confirmed, confirm_option
from samelog.cli.live_names import complete_sessions
from samelog.cli.output import (
    client_option,
    fail,
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
    """List all sessions: owner, newest run, unmerged and held bytes, damage.

    Held bytes are those that a connected publisher neither ships nor removes, because their topic
    was deleted before they were merged. Damaged ranges are parts of its files whose records are
    lost, because a disk damaged them before they were shipped.

    \b
    Example:
      samelog session list --config client.toml
    """
    sessions = sorted(ask(config, GetStatus()).sessions, key=lambda each: each.session)
    if wants_json():
        print_json(sessions)
        return
    columns = (
        *("session", "identity", "run", "open"),
        *("unmerged bytes", "held bytes", "damaged ranges", "dedup id"),
    )
    print_table(columns, [_row(session) for session in sessions])


def _row(session: SessionInfo) -> tuple[object, ...]:
    is_open = "yes" if session.is_open else "no"
    name = session.session, session.identity, session.run
    held = sum(each.size_bytes for each in session.held)
    damaged = sum(each.ranges for each in session.damaged)
    return (*name, is_open, session.unmerged_bytes, held, damaged, session.dedup_id)


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


@command.command("continue")
@click.argument("name", shell_complete=complete_sessions)
@client_option
@json_option
def continue_command(config: ClientConfig, *, name: str) -> None:
    """Ship the held records of session NAME to the next topic.

    They are held because their topic was deleted before they were merged. They continue, in their
    order, into the topic that has the name now, or gets it when they arrive. The publisher or its
    sidecar must be connected.

    \b
    Example:
      samelog session continue ewr --config client.toml
    """
    _report(ask(config, ContinueSession(name)), "continue")


@command.command()
@click.argument("name", shell_complete=complete_sessions)
@confirm_option("NAME")
@client_option
@json_option
def discard(config: ClientConfig, *, name: str, confirm: str | None) -> None:
    """Discard the held records of session NAME.

    They are held because their topic was deleted before they were merged. What is appended later
    goes to the next topic of that name. The publisher or its sidecar must be connected.

    \b
    Example:
      samelog session discard ewr --confirm ewr --config client.toml
    """
    if confirm != name:
        check_confirmed(confirm, name, _loss(config, name))
    _report(ask(config, DiscardSession(name, confirm=name)), "are discarded")


def _loss(config: ClientConfig, name: str) -> str:
    """What a discard would lose. Fails if no connected publisher holds records of the session."""
    known = ask(config, GetStatus()).sessions
    session = next((each for each in known if each.session == name), None)
    if session is None:
        fail(f"there is no session {name!r}. Look with: samelog session list")
    held = session.held
    if not held:
        fail(f"no connected publisher holds records of session {name}; nothing is discarded")
    size = sum(each.size_bytes for each in held)
    parts = f"{len(held)} partition{'s' if len(held) > 1 else ''}"
    return f"The held records of session {name} would be lost: {size} bytes of {parts}"


def _report(decided: SessionDecided, what: str) -> None:
    found = {"session": decided.session, "held_bytes": decided.held_bytes}
    report(found, f"{decided.held_bytes} held bytes of session {decided.session} {what}")
