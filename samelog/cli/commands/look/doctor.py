"""`samelog doctor`: whether a host, files of nodes and a cluster are as they have to be.

Invariant: nothing is changed; the exit code is 1 if anything has failed.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from samelog.cli.doctor.findings import Diagnosis, Soundness
from samelog.cli.output import (
    fail,
    json_option,
    optional_client,
    print_json,
    print_table,
    printable,
    wants_json,
)
from samelog.config.tables.client import ClientConfig


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False))
@optional_client("no running cluster is looked at")
@json_option
def command(config: ClientConfig | None, *, files: Sequence[str]) -> None:
    """Look for what is wrong, or soon will be: on this host, in FILES, and in a running cluster.

    Of the host: its clock, and how many files a new process may open. FILES are the
    node.toml of nodes; those of one host, or of several: whether certificates and keys can be used,
    when they expire, how long a sync of the disk takes, whether the disk is larger than the
    archive's limit, whether ports are free and peers reachable, and whether all give the same
    grants. With --config, over the network: whether every node is ready, how close it is to its
    limits of descriptors, memory and threads, when its certificate expires, whether clocks differ,
    whether a partition is halted or a site is behind, and whether versions, archiving policies and
    grants are alike. Nothing is changed.

    The exit code is 1 if anything has failed, and 0 if there are only warnings.

    \b
    Examples:
      samelog doctor
      samelog doctor /etc/samelog/node.toml
      samelog doctor rt-sequencer-*/node.toml --config client.toml --json
    """
    findings = look(config, files)
    failed = sum(each.verdict is Soundness.FAILED for each in findings)
    warnings = sum(each.verdict is Soundness.WARNING for each in findings)
    if wants_json():
        print_json({"failed": failed, "warnings": warnings, "findings": findings})
    else:
        _print(findings)
    if failed:
        fail(f"{failed} of {len(findings)} have failed")


def look(config: ClientConfig | None, files: Sequence[str]) -> list[Diagnosis]:
    """All that was found. Raises ConfigError."""
    from samelog.cli.doctor.cluster import check_cluster
    from samelog.cli.doctor.host import check_host, check_nodes
    from samelog.config.load import load_node

    findings = check_host() + check_nodes([load_node(file) for file in files])
    return findings if config is None else findings + check_cluster(config)


def _print(findings: Sequence[Diagnosis]) -> None:
    """A table of all, and below it what to do about those that are not well."""
    rows = [(each.verdict, each.of, each.subject, each.said) for each in findings]
    print_table(("verdict", "of", "subject", "what was found"), rows)
    for each in findings:
        if each.remedy:
            click.echo(printable(f"{each.of}, {each.subject}: {each.remedy}."))
