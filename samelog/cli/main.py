"""The `samelog` command: finds subcommands, and turns known errors into messages and exit codes.

Invariant: a subcommand's module is imported only when it runs or its own help is shown, so that
every command starts as fast as what it alone needs.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from samelog import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SUBCOMMANDS = {
    "demo": ("demo", "Send a year of flights through a cluster, and prove what came."),
    "up": ("up", "Run a local cluster with a PKI of its own."),
    "down": ("down", "End the local cluster that `samelog up` runs."),
    "node": ("node", "Run a node; list, add, replace and remove nodes."),
    "publish": ("publish", "Publish files, or standard input, as records."),
    "subscribe": ("subscribe", "Copy topics, and print their records."),
    "peek": ("look.peek", "Print some records of a topic without a copy."),
    "mirror": ("mirroring.mirror", "Keep topics of another cluster as mirrors; promote them."),
    "replay": ("look.replay", "Serve topics again as they came, to any Kafka client."),
    "sidecar": ("sidecar", "Ship or keep files for programs that use files only."),
    "topic": ("topic", "Create, list, describe, alter and delete topics."),
    "schema": ("schema", "Set, check and show schemas of topics, and records as rows."),
    "group": ("group", "List, describe and reset consumer groups."),
    "transaction": ("transaction", "List, describe and abort transactions of Kafka producers."),
    "pipeline": ("pipeline", "Run pipelines on Spark, over topics of a cluster."),
    "session": ("session", "List and retire publishers' sessions."),
    "archive": ("archive", "Show what archiving would do, by the policy."),
    "log-history": ("log_history", "Show every file of merged logs there ever was."),
    "restore": ("restore", "Bring archived records back from their copies."),
    "top": ("look.top", "Show live what a cluster does: nodes, topics, rates, lag."),
    "ui": ("look.ui", "Show a cluster in a browser: the console."),
    "placement": ("look.placement", "Show which groups there are, and what is where."),
    "tasks": ("placing.tasks", "List, pause, resume, cancel and await moves of replicas."),
    "site": ("placing.site", "List, add and remove sites, and show how far they are behind."),
    "doctor": ("look.doctor", "Look for what is wrong on a host and in a cluster."),
    "status": ("look.status", "Show the nodes, partitions and sessions of a cluster."),
    "verify": ("verify", "Check and compare merged logs in directories."),
    "spark": ("spark", "Check or republish whole archives with Spark."),
    "pki": ("pki", "Make and show certificates of a private authority."),
    "config": ("config", "Check and show configuration files."),
    "cluster": ("cluster", "Restart, upgrade or reset a whole running cluster."),
    "context": ("shell.context", "Give names to clients' configurations."),
    "completion": ("shell.completion", "Print what makes a shell complete commands and names."),
    "recover": ("recover", "Recover from disasters."),
}
"""In the order of the help text. Of each its module in `commands`, which has a `command`, and what
the list says about it: a list that asked the modules would import all there is.
"""


EXIT_INTERRUPTED = 130
"""128 and SIGINT, as of a program that the signal ended."""


class LazyGroup(click.Group):
    """A group of commands that are imported when first used."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command line, also where a standard file is closed."""
        if None in (sys.stdin, sys.stdout, sys.stderr):
            from samelog.cli.standard_files import open_closed

            open_closed()
        return super().main(*arguments, **options)

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Parse the command line; an interrupt leaves as it does from `invoke`."""
        try:
            return super().make_context(*arguments, **options)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the subcommands, in the order of SUBCOMMANDS."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of this name, or None."""
        if cmd_name not in SUBCOMMANDS:
            return None
        module = import_module(f"samelog.cli.commands.{SUBCOMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand that is meant; an unknown one's error names those that are like it."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=SUBCOMMANDS, ctx=ctx
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of subcommands, of which none is imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, said) for name, (_, said) in SUBCOMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The subcommands and options that begin so."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=said)
            for name, (_, said) in SUBCOMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; what the operator should know leaves as an OperatorError."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except Exception as error:
            from samelog.cli.errors import operator_error

            told = operator_error(error)
            if told is None:
                raise
            raise told from error


def _use_context(ctx: click.Context, param: click.Parameter, name: str | None) -> None:
    from samelog.cli.contexts import use_context

    use_context(name)


def _complete_contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from samelog.cli.live_names import complete_contexts

    return complete_contexts(ctx, param, incomplete)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="samelog", message="%(prog)s %(version)s")
@click.option(
    "--context",
    metavar="NAME",
    expose_value=False,
    callback=_use_context,
    shell_complete=_complete_contexts,
    help="Use this configuration of `samelog context`, not the current one.",
)
def main() -> None:
    """Kafka-compatible log shipping: local appends, mutual TLS, byte-identical merged logs.

    Every command that shows something takes --json. Data goes to stdout, talk to stderr; the exit
    code is 0 only if what was asked for is true, 1 if not, and 2 if it could not be understood.

    \b
    Examples:
      samelog up --dir /tmp/sl --detach
      export SAMELOG_CONFIG=/tmp/sl/client.toml
      seq 9 | samelog publish --topic numbers --session demo --dir /tmp/pub --wait
      samelog peek numbers --last 3
      samelog topic create --help
    """


if __name__ == "__main__":
    main()
