"""`shiplog demo`: the whole path on real data, with the leader killed in the middle, and a proof
from the files.

Invariant: exit code 0 means that every claim in the report holds; no process is left behind.
"""

from __future__ import annotations

import shutil
import tempfile

import click

from shiplog.cli.local_cluster import ClusterError
from shiplog.cli.output import fail, json_option, print_json


@click.command()
@click.option(
    "--dir", "directory", help="Keep all files here; else a temporary directory, removed."
)
@click.option("--seconds", default=10.0, show_default=True, help="How long the publishers take.")
@json_option
def command(directory: str | None, *, seconds: float, as_json: bool) -> None:
    """Publish all 336,776 flights of 2013 from New York through a real cluster, and prove what came
    out.

    Three node processes, three publishers (EWR, JFK, LGA), a subscriber from the start and one that
    joins late. In the middle the leader is killed with SIGKILL and started again.

    \b
    Examples:
      shiplog demo
      shiplog demo --json
      shiplog demo --dir demo-run --seconds 20
    """
    from shiplog.cli.demo.report import print_report
    from shiplog.cli.demo.run import Demo, DemoFailed

    place = directory or tempfile.mkdtemp(prefix="shiplog-demo-")
    try:
        report = Demo(place, publish_seconds=seconds).run()
    except (DemoFailed, ClusterError) as error:
        fail(f"{error} (files kept in {place})")
    if as_json:
        print_json(report)
    else:
        print_report(report)
    if not (report["identical"] and report["complete"] and report["order_kept"]):
        fail(f"the proof failed; files kept in {place}")
    if directory is None:
        shutil.rmtree(place)
