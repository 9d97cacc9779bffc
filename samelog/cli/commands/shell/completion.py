"""`samelog completion`: what a shell has to run so that it completes commands, options and names.

Invariant: what is printed is a script of that shell, and nothing else.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_SAMELOG_COMPLETE"
"""By it the `samelog` command knows that a shell asks."""
SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a script that makes SHELL complete commands, options, topics, groups, nodes and
    sessions.

    Names are asked for at the cluster that --config, SAMELOG_CONFIG or the current context says.
    bash has to be of version 4.4 or newer.

    \b
    Examples:
      eval "$(samelog completion bash)"                       # in ~/.bashrc
      eval "$(samelog completion zsh)"                        # in ~/.zshrc, behind compinit
      samelog completion fish > ~/.config/fish/completions/samelog.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"{shell} is not known to this version of click")
    click.echo(kind(context.find_root().command, {}, "samelog", VARIABLE).source())
