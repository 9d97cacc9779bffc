"""`samelog log-history`: every file there ever was of merged logs, archived or not.

Invariant: files are shown as they come, a page at a time: a million of them take no memory.
"""

from __future__ import annotations

import json

import click

from samelog.admin.answers import LogFile
from samelog.admin.client import log_history
from samelog.cli.live_names import complete_topics
from samelog.cli.output import client_option, json_option, print_table, utc, wants_json
from samelog.config.tables.client import ClientConfig
from samelog.format.file_names import LOG, segment_name
from samelog.wire.plain import to_json

ROWS = 500
"""Of one table."""


@click.command()
@click.argument("topic", default="", shell_complete=complete_topics)
@click.option("--partition", type=click.IntRange(min=0), help="Of this partition only.")
@client_option
@json_option
def command(config: ClientConfig, *, topic: str, partition: int | None) -> None:
    """Show every file of merged logs there ever was: of TOPIC, or of all topics.

    Archived files are empty now; shown is what they were, with their SHA-256, when they went and by
    which rule, and where they were copied to before. With --json, one object a line.

    \b
    Examples:
      samelog log-history --config client.toml
      samelog log-history flights --partition 0 --config client.toml --json
    """
    found = log_history(config, topic, partition=partition)
    if wants_json():
        for each in found:
            file = segment_name(each.first_offset, LOG)
            click.echo(json.dumps({"file": file, **to_json(each)}))
        return
    columns = (
        "partition",
        "file",
        "to",
        "bytes",
        "first",
        "last",
        "rolled",
        "archived",
        "rule",
        "copy",
    )
    rows = []
    for each in found:
        rows.append(_row(each))
        if len(rows) == ROWS:
            print_table(columns, rows)
            rows = []
    print_table(columns, rows)


def _row(each: LogFile) -> tuple[object, ...]:
    return (
        f"{each.topic}-{each.partition}",
        segment_name(each.first_offset, LOG),
        each.next_offset,
        each.size_bytes,
        utc(each.first_ms),
        utc(each.last_ms),
        utc(each.rolled_ms),
        utc(each.archived_ms),
        each.reason,
        f"{each.copy_formats} at {each.copy_url}" if each.copy_url else "",
    )
