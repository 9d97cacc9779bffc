"""`samelog node`: one sequencer node, in the foreground; and which nodes a cluster has.

Invariant: the subcommands, which are asked in a hurry when a pod stops, import nothing of a node.
"""

from __future__ import annotations

import click

from samelog.cli.membership import SUBCOMMANDS
from samelog.cli.output import json_option, print_json, talk


@click.group(invoke_without_command=True)
@click.option("--config", "config_file", type=click.Path(dir_okay=False), help="node.toml")
@click.option("--bootstrap", is_flag=True, help="Make the data directory of a new cluster's voter.")
@click.option("--check", is_flag=True, help="Check the configuration and exit.")
@json_option
@click.pass_context
def command(
    context: click.Context, config_file: str | None, *, bootstrap: bool, check: bool, as_json: bool
) -> None:
    """Run one node of a cluster until SIGTERM or SIGINT; or, with a subcommand, change which nodes
    a cluster has.

    The first start of a new cluster's node needs --bootstrap, once. An empty directory without it
    is a node that joins, or that lost its memory: it asks the peers of its configuration for its
    place, waits until somebody has added it, and does not vote before the cluster lets it.

    A changed configuration file, or SIGHUP, is taken over as far as docs/configuration.md says.

    \b
    Examples:
      samelog node --config /etc/samelog/node.toml --bootstrap
      samelog node --config /etc/samelog/node.toml
      samelog node --config node.toml --check --json
      samelog node add rt-sequencer-3 10.0.0.4:7000 --config client.toml
      samelog node list --config client.toml
    """
    if context.invoked_subcommand is not None:
        return
    if config_file is None:
        raise click.UsageError("a node needs --config node.toml, or name a subcommand")
    if check:
        from samelog.config.load import load_node

        config = load_node(config_file)
        if as_json:
            print_json({"config": config_file, "valid": True, "node": config.name})
        else:
            talk(f"{config_file}: valid, node {config.name} of cluster {config.cluster}")
        return
    from samelog.cli.node_process import run_node

    run_node(config_file, bootstrap=bootstrap)


for subcommand in SUBCOMMANDS:
    command.add_command(subcommand)
