"""`samelog schema rows`: records of a topic as rows of a version of its schema, for people to look
at.

Invariant: each record is printed, or named with the reason why not.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from samelog.admin.client import topic_schemas
from samelog.cli.commands.look.peek import Beginning, ranges_of
from samelog.cli.live_names import complete_topics
from samelog.cli.numbers import COUNT, OFFSET, PARTITION, VERSION
from samelog.cli.output import (
    EXIT_FAILED,
    client_file_option,
    fail,
    json_option,
    registry_option,
    talk,
    wants_json,
)
from samelog.cli.value_rows import lines
from samelog.config.load import load_client
from samelog.format.arrow import to_arrow
from samelog.spark.logs.nodes import Nodes, RemoteLogs
from samelog.spark.plan.offsets import OffsetRange
from samelog.typed.filters.operands import BadFilter
from samelog.typed.filters.selection import RowsWanted, Selection
from samelog.typed.reading import TypedReader
from samelog.typed.schema import parse_schema
from samelog.typed.values.codec import reading_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from samelog.admin.registry import SchemaRegistry

SHOWN = 10
ANSWER_S = 10.0


@click.command("rows")
@click.argument("topic", shell_complete=complete_topics)
@click.option("--partition", type=PARTITION, help="Only this one.  [default: all]")
@click.option("--offset", type=OFFSET, help="Begin with this offset.")
@click.option("--last", type=COUNT, metavar="N", help="The newest N records.")
@click.option(
    "--max",
    "limit",
    default=SHOWN,
    show_default=True,
    type=COUNT,
    help="Look at so many records of a partition; with --last, at those.",
)
@click.option("--version", type=VERSION, help="Of this one; else the newest.")
@click.option("--where", metavar="CONDITION", help="Of those, the ones that meet it.")
@click.option("--columns", metavar="A,B", help="These columns.")
@registry_option
@client_file_option
@json_option
def rows_command(
    *,
    config: str,
    topic: str,
    partition: int | None,
    limit: int,
    version: int | None,
    where: str | None,
    columns: str | None,
    registry: SchemaRegistry | None,
    **place: int | None,
) -> None:
    """Print some records of TOPIC as rows of a version of its schema.

    Each record is read by the version that it was written with, and printed as a row of another: a
    JSON object. The exit code is 1 if one cannot be read.

    \b
    Examples:
      samelog schema rows ticks --config client.toml
      samelog schema rows ticks --last 100 --where "price > 100" --config client.toml
    """
    begin = Beginning(**place)
    begin.check()
    wanted = RowsWanted(where, None if columns is None else columns.split(","))
    unread = 0
    with closing(Nodes(config, timeout_s=ANSWER_S)) as nodes:
        for each in ranges_of(RemoteLogs(nodes), topic, partition, begin):
            end = min(each.end, each.start + (begin.last or limit))
            asked = _RowsAsked(version, wanted, registry)
            unread += _print_rows(config, nodes, each._replace(end=end), asked)
    if unread:
        click.get_current_context().exit(EXIT_FAILED)


class _RowsAsked(NamedTuple):
    """Which rows: of which version, which of them, and who knows ids in values."""

    version: int | None
    rows: RowsWanted
    registry: SchemaRegistry | None


def _print_rows(config: str, nodes: Nodes, wanted: OffsetRange, asked: _RowsAsked) -> int:
    """A JSON object a line; how many records cannot be read."""
    topic, partition = wanted.name
    known = topic_schemas(load_client(config), topic, partition)
    schemas = {each.version: parse_schema(each.schema) for each in known.versions}
    version = asked.version or known.newest
    if version not in schemas:
        fail(f"topic {topic} has {known.newest or 'no'} versions of a schema")
    columns = to_arrow(b"", 0, 0, topic=topic, partition=partition).schema
    try:
        selection = Selection(asked.rows, reading_schema(schemas[version]), columns)
    except BadFilter as error:
        fail(str(error))
    reader, unread = TypedReader(schemas, version, asked.registry), 0
    for chunk in nodes.read(wanted):
        records = _within(
            to_arrow(chunk.data, 0, chunk.size, topic=topic, partition=partition), wanted
        )
        found = selection.of(reader.read(records, known.since), records)
        for row, source in zip(lines(found.table), found.sources, strict=True):
            click.echo(_line(row, records["offset"][source].as_py()))
        for each in found.unread:
            talk(f"samelog: {each}")
        unread += len(found.unread)
    return unread


def _within(records: pa.Table, wanted: OffsetRange) -> pa.Table:
    from pyarrow import compute

    offsets = records["offset"]
    is_in = compute.and_(
        compute.greater_equal(offsets, wanted.start), compute.less(offsets, wanted.end)
    )
    return records.filter(is_in)


def _line(row: bytes, offset: int) -> bytes:
    if wants_json():
        return msgspec.json.encode({"offset": offset, "row": msgspec.Raw(row)})
    return row
