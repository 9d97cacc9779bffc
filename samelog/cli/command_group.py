"""A group of commands, whose help says in a whole sentence what each of them does."""

from __future__ import annotations

import click

SENTENCE = 400
"""Characters; click would cut what is longer than a line."""


class CommandGroup(click.Group):
    """Its list of commands has lines for all that a sentence says."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of subcommands."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(SENTENCE)) for name, each in found if each]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
