"""`samelog down`: ends what `samelog up` runs in a directory.

Invariant: exit code 0 means that the cluster ran, and that none of its processes runs any more.
"""

from __future__ import annotations

import os

import click

from samelog.cli import local_lock
from samelog.cli.local_cluster import ClusterError
from samelog.cli.output import fail, json_option, report


@click.command()
@click.option(
    "--dir", "directory", default="samelog-local", show_default=True, help="Its directory."
)
@json_option
def command(directory: str) -> None:
    """End the local cluster in DIR that `samelog up` runs. Its files stay: `up` continues it.

    \b
    Example:
      samelog down --dir /tmp/sl
    """
    try:
        ended = local_lock.end(os.path.abspath(directory))
    except ClusterError as error:
        fail(str(error))
    if not ended:
        fail(f"no cluster runs in {directory}")
    report({"ended": ended}, f"the cluster in {directory} has ended")
