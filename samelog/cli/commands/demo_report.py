"""The demo's report for a human. Invariant: it shows the same facts as `--json`, nothing else."""

from __future__ import annotations

from typing import Any

import click

from samelog.cli.output import print_table


def print_report(report: dict[str, Any]) -> None:
    """Tables on stdout, and the verdict in words."""
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
    for line in (*_verdict(report), *_pipeline(report["pipeline"])):
        click.echo(line)


def _verdict(report: dict[str, Any]) -> list[str]:
    identical, complete = report["identical"], report["complete"]
    counts = f"{report['merged']:,} merged, {report['unique']:,} distinct"
    rate, seconds = report["records_per_second"], report["seconds"]
    return [
        f"all copies byte-identical: {_yes(identical)}",
        f"every flight there exactly once: {_yes(complete)} ({counts})",
        f"each airport's order kept: {_yes(report['order_kept'])}",
        f"leader {report['killed']} killed: new leader after {report['failover_seconds']:.2f} s",
        f"{rate:,.0f} records/s while publishing, {seconds:.1f} s in all",
    ]


def _pipeline(told: dict[str, Any] | None) -> list[str]:
    if told is None or "error" in told:
        return []
    counts = f"{told['flights']:,} flights joined with the weather, {told['rows']:,} rows"
    return [
        f"pipeline flights: {counts} of weekly statistics, {told['seconds']:.1f} s",
        f"picture: {told['picture']}",
    ]


def _yes(value: bool) -> str:
    return "yes" if value else "NO"
