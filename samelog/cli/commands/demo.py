"""`samelog demo`: the whole path on real data, with the leader killed in the middle, and a proof
from the files; then what the pipeline `flights` makes of it.

Invariant: exit code 0 means that every claim in the report holds; no process is left behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

import click

from samelog.cli.numbers import SOME_TIME_S
from samelog.cli.output import (
    fail,
    json_option,
    print_json,
    print_table,
    progress,
    talk,
    wants_json,
)

PICTURE = "flights.png"
HOW = {
    "SIGKILL": "killed (its connections closed, so the others knew at once)",
    "SIGSTOP": "silent (stopped: nothing closed and nothing answered, as on a cut network)",
}


@click.command()
@click.option(
    "--dir",
    "directory",
    help="Keep all files here; else a temporary directory, of which only pictures are kept.",
)
@click.option(
    "--seconds",
    default=10.0,
    show_default=True,
    type=SOME_TIME_S,
    help="How long the publishers take.",
)
@click.option(
    "--pipeline/--no-pipeline",
    "has_pipeline",
    default=True,
    show_default=True,
    help="End with the pipeline flights, which needs Java, and its picture.",
)
@json_option
def command(directory: str | None, *, seconds: float, has_pipeline: bool) -> None:
    """Publish all 336,776 flights of 2013 from New York through a real cluster, and prove what came
    out.

    Three node processes, three publishers (EWR, JFK, LGA), a subscriber from the start and one that
    joins late. In the middle the leader is killed with SIGKILL and started again; later the next
    leader is stopped with SIGSTOP, so that it is silent as a host whose network is cut, and goes on
    when another one leads. In the end Spark reads the flights, joins them with the weather, and
    draws how late they were. Another picture shows what the cluster did meanwhile.

    \b
    Examples:
      samelog demo
      samelog demo --no-pipeline
      samelog demo --json
      samelog demo --dir demo-run --seconds 20
    """
    place = directory or tempfile.mkdtemp(prefix="samelog-demo-")
    picture = os.path.join(os.path.abspath(place), PICTURE) if has_pipeline else None
    report = _run(place, seconds, picture)
    if wants_json():
        print_json(report)
    else:
        _print_report(report)
    if not (report["identical"] and report["complete"] and report["order_kept"]):
        fail(f"the proof failed; files kept in {place}")
    if directory is None:
        _clean(place, {report["picture"], picture})
    if report["pipeline"] is not None and "error" in report["pipeline"]:
        fail(f"there is no picture: {report['pipeline']['error']}")


def _run(place: str, seconds: float, picture: str | None) -> dict[str, Any]:
    from samelog.examples.demo.processes import DemoFailed
    from samelog.examples.demo.run import Demo
    from samelog.examples.flights.data import TOTAL, DataMissing
    from samelog.spark.pipelines import PipelineError

    try:
        with progress("flights appended", TOTAL) as advance:
            demo = Demo(
                place, publish_seconds=seconds, lake_picture=picture, say=talk, on_appended=advance
            )
            return demo.run()
    except (DemoFailed, DataMissing, PipelineError) as error:
        fail(f"{error} (files kept in {place})")


def _clean(place: str, kept: set[str | None]) -> None:
    """Remove the demo's files, but for those that are kept."""
    for name in os.listdir(place):
        path = os.path.join(place, name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif path not in kept:
            os.unlink(path)


def _print_report(report: dict[str, Any]) -> None:
    """For a human: the same facts as `--json`, as tables and in words."""
    print_table(
        ["publisher", "appended", "merged"],
        [[row["session"], row["appended"], row["merged"]] for row in report["publishers"]],
        title="Publishers",
    )
    click.echo()
    print_table(
        ["copy", "role", "offset", "bytes", "sha256"],
        [
            [row["name"], row["role"], row["offset"], row["bytes"], row["sha256"][:16]]
            for row in report["copies"]
        ],
        title="Merged logs",
    )
    click.echo()
    print_table(
        ["carrier", "flights", "mean delay (min)", "median"],
        [
            [row["carrier"], row["flights"], row["mean_minutes"], row["median_minutes"]]
            for row in report["delays"]
        ],
        title="Arrival delay by carrier, from the merged log",
    )
    click.echo()
    for line in (*_verdict(report), *_pipeline_lines(report["pipeline"])):
        click.echo(line)


def _verdict(report: dict[str, Any]) -> list[str]:
    identical, complete = report["identical"], report["complete"]
    counts = f"{report['merged']:,} merged, {report['unique']:,} distinct"
    return [
        f"all copies byte-identical: {_yes(identical)}",
        f"every flight there exactly once: {_yes(complete)} ({counts})",
        f"each airport's order kept: {_yes(report['order_kept'])}",
        *(_failover(each) for each in report["failovers"]),
        f"published at an even pace for {report['publish_seconds']:g} s: no measure of speed",
        f"{report['seconds']:.1f} s in all",
        f"picture of what the cluster did: {report['picture']}",
    ]


def _failover(told: dict[str, Any]) -> str:
    return (
        f"leader {told['leader']} {HOW[told['signal']]}: new leader after {told['seconds']:.2f} s"
    )


def _pipeline_lines(told: dict[str, Any] | None) -> list[str]:
    if told is None or "error" in told:
        return []
    counts = f"{told['flights']:,} flights joined with the weather, {told['rows']:,} rows"
    return [
        f"pipeline flights: {counts} of weekly statistics, {told['seconds']:.1f} s",
        f"picture of the flights: {told['picture']}",
    ]


def _yes(value: bool) -> str:
    return "yes" if value else "NO"
