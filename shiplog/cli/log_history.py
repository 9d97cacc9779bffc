"""`shiplog log-history`: every file there ever was of merged logs, archived or not.

Invariant: files are shown as they come, a page at a time: a million of them take no memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from shiplog.cli.output import client_option, json_option, print_table
from shiplog.config.load import load_client
from shiplog.config.types import ClientConfig
from shiplog.logformat.merged_names import LOG, segment_name
from shiplog.replicator.admin_client import request
from shiplog.wire.admin_archive import LogFile, LogHistory, LogHistoryPage
from shiplog.wire.plain import to_json

ROWS = 500
"""Of one table."""


def log_history(
    config: ClientConfig | str, topic: str = "", *, partition: int | None = None
) -> Iterator[LogFile]:
    """Every file of merged logs there ever was, in order of topic, partition and offset.

    Args:
        config: a client's configuration, or its file.
        topic: of this topic only.
        partition: of this partition only.

    Yields:
        LogFile: offsets [first_offset, next_offset), times in ms since the epoch (-1: none, or
        not known), `archived_ms` -1 while the file is there, `size_bytes` before it was archived,
        `sha256` of a sealed one, `reason` of an archived one; `copied_ms`, `copy_url` and
        `copy_formats` of one that was copied before.

    Raises:
        AdminError: no node answers, or there is no such topic.
    """
    client = load_client(config) if isinstance(config, str) else config
    wanted = LogHistory(topic, -1 if partition is None else partition)
    while True:
        page = request(client, wanted, LogHistoryPage)
        yield from page.files
        if not page.more:
            return
        last = page.files[-1]
        place = last.topic, last.partition, last.next_offset
        wanted = LogHistory(wanted.topic, wanted.partition, *place)


@click.command()
@click.argument("topic", default="")
@click.option("--partition", type=click.IntRange(min=0), help="Of this partition only.")
@client_option
@json_option
def command(config: ClientConfig, *, topic: str, partition: int | None, as_json: bool) -> None:
    """Show every file of merged logs there ever was: of TOPIC, or of all topics.

    Archived files are empty now; shown is what they were, with their SHA-256, when they went and by
    which rule, and where they were copied to before. With --json, one object a line.

    \b
    Examples:
      shiplog log-history --config client.toml
      shiplog log-history flights --partition 0 --config client.toml --json
    """
    found = log_history(config, topic, partition=partition)
    if as_json:
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
        _time(each.first_ms),
        _time(each.last_ms),
        _time(each.rolled_ms),
        _time(each.archived_ms),
        each.reason,
        f"{each.copy_formats} at {each.copy_url}" if each.copy_url else "",
    )


def _time(ms: int) -> str:
    """In UTC; nothing if there is none, the number if no calendar has it."""
    if ms < 0:
        return ""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(ms)
