"""The `samelog` command: finds subcommands, and turns known errors into messages and exit codes.

Invariant: a subcommand's module is imported only when it runs or its help is shown, so that every
command starts as fast as what it alone needs.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from samelog import __version__

SUBCOMMANDS = (
    "demo",
    "up",
    "down",
    "node",
    "publish",
    "subscribe",
    "sidecar",
    "topic",
    "schema",
    "group",
    "pipeline",
    "session",
    "archive",
    "log-history",
    "restore",
    "status",
    "verify",
    "spark",
    "pki",
    "config",
    "cluster",
    "recover",
)
"""In the order of the help text: each is a module of `commands` with a `command`."""


def _module(name: str) -> str:
    return f"samelog.cli.commands.{name.replace('-', '_')}"


class LazyGroup(click.Group):
    """A group of commands that are imported when first used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the subcommands, in the order of SUBCOMMANDS."""
        return [name for name in SUBCOMMANDS if find_spec(_module(name))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of this name, or None."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(_module(cmd_name)).command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; what the operator should know leaves as an OperatorError."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            from samelog.cli.errors import operator_error

            told = operator_error(error)
            if told is None:
                raise
            raise told from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="samelog", message="%(prog)s %(version)s")
def main() -> None:
    """Kafka-compatible log shipping: local appends, mutual TLS, byte-identical merged logs.

    Every command that shows something takes --json. Data goes to stdout, talk to stderr; the exit
    code is 0 only if what was asked for is true, 1 if not, and 2 if it could not be understood.
    """


if __name__ == "__main__":
    main()
