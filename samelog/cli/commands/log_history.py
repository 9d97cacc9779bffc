"""`samelog log-history`: every file there ever was of merged logs, archived or not.

Invariant: files are shown as they come, a page at a time: a million of them take no memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice

import click

from samelog.admin.answers import LogFile
from samelog.admin.client import log_history
from samelog.cli.live_names import complete_topics
from samelog.cli.numbers import PARTITION
from samelog.cli.output import client_option, json_option, print_table, utc, wants_json
from samelog.config.tables.client import ClientConfig
from samelog.format.file_names import LOG, segment_name
from samelog.wire.plain import to_json

ROWS = 500
"""Of one table."""
COLUMNS = (
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
SHORT_COLUMNS = ("partition", "from", "to", "bytes", "first", "last", "since then")


@click.command()
@click.argument("topic", default="", shell_complete=complete_topics)
@click.option("--partition", type=PARTITION, help="Of this partition only.")
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
    for page in _pages(found):
        if sys.stdout.isatty():
            print_table(SHORT_COLUMNS, [_short_row(each) for each in page])
        else:
            print_table(COLUMNS, [_row(each) for each in page])


def _pages(found: Iterator[LogFile]) -> Iterator[list[LogFile]]:
    """The first page may be empty."""
    page = list(islice(found, ROWS))
    yield page
    while len(page) == ROWS and (page := list(islice(found, ROWS))):
        yield page


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
        _copy(each),
    )


def _short_row(each: LogFile) -> tuple[object, ...]:
    """For the width of a terminal: a file's name is its first offset."""
    return (
        f"{each.topic}-{each.partition}",
        each.first_offset,
        each.next_offset,
        each.size_bytes,
        utc(each.first_ms),
        utc(each.last_ms),
        _fate(each),
    )


def _fate(each: LogFile) -> str:
    said = [f"rolled {utc(each.rolled_ms)}"] if each.rolled_ms >= 0 else []
    if each.copy_url:
        said.append(_copy(each))
    if each.archived_ms >= 0:
        said.append(f"archived {utc(each.archived_ms)}: {each.reason}")
    return "; ".join(said)


def _copy(each: LogFile) -> str:
    return f"{each.copy_formats} at {each.copy_url}" if each.copy_url else ""
