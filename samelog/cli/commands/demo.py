"""`samelog demo`: the whole path on real data, with the leader killed in the middle, and a proof
from the files; then what the pipeline `flights` makes of it.

Invariant: exit code 0 means that every claim in the report holds; no process is left behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import click

from samelog.cli.local_cluster import ClusterError
from samelog.cli.output import fail, json_option, print_json

PICTURE = "flights.png"


@click.command()
@click.option(
    "--dir",
    "directory",
    help="Keep all files here; else a temporary directory, of which only the picture is kept.",
)
@click.option("--seconds", default=10.0, show_default=True, help="How long the publishers take.")
@click.option(
    "--pipeline/--no-pipeline",
    "has_pipeline",
    default=True,
    show_default=True,
    help="End with the pipeline flights, which needs Java, and its picture.",
)
@json_option
def command(directory: str | None, *, seconds: float, has_pipeline: bool, as_json: bool) -> None:
    """Publish all 336,776 flights of 2013 from New York through a real cluster, and prove what came
    out.

    Three node processes, three publishers (EWR, JFK, LGA), a subscriber from the start and one that
    joins late. In the middle the leader is killed with SIGKILL and started again. In the end Spark
    reads the flights, joins them with the weather, and draws how late they were.

    \b
    Examples:
      samelog demo
      samelog demo --no-pipeline
      samelog demo --json
      samelog demo --dir demo-run --seconds 20
    """
    from samelog.cli.commands.demo_report import print_report
    from samelog.examples.demo.run import Demo, DemoFailed

    place = directory or tempfile.mkdtemp(prefix="samelog-demo-")
    picture = os.path.join(os.path.abspath(place), PICTURE) if has_pipeline else None
    try:
        report = Demo(place, publish_seconds=seconds, picture=picture).run()
    except (DemoFailed, ClusterError) as error:
        fail(f"{error} (files kept in {place})")
    if as_json:
        print_json(report)
    else:
        print_report(report)
    if not (report["identical"] and report["complete"] and report["order_kept"]):
        fail(f"the proof failed; files kept in {place}")
    if directory is None:
        _clean(place)
    if report["pipeline"] is not None and "error" in report["pipeline"]:
        fail(f"there is no picture: {report['pipeline']['error']}")


def _clean(place: str) -> None:
    """Remove the demo's files, but for the picture."""
    for name in os.listdir(place):
        path = os.path.join(place, name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif name != PICTURE:
            os.unlink(path)
    if not os.listdir(place):
        os.rmdir(place)
