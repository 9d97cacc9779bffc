"""Records of a topic as rows of a version of its schema, for people to look at.

Invariant: each record is printed, or named with the reason why not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from samelog.admin.client import topic_schemas
from samelog.cli.output import EXIT_FAILED, fail, talk, wants_json
from samelog.config.load import load_client
from samelog.format.arrow import to_arrow
from samelog.spark.logs.nodes import Nodes
from samelog.spark.plan.offsets import OffsetRange
from samelog.typed.filters.operands import BadFilter
from samelog.typed.filters.selection import RowsWanted, Selection
from samelog.typed.reading import TypedReader
from samelog.typed.schema import parse_schema
from samelog.typed.values.codec import reading_schema

if TYPE_CHECKING:
    import pyarrow as pa


def print_rows(
    config: str, nodes: Nodes, wanted: OffsetRange, version: int | None, rows: RowsWanted
) -> None:
    """A JSON object a line; ends the command with EXIT_FAILED if a record cannot be read."""
    topic, partition = wanted.name
    known = topic_schemas(load_client(config), topic, partition)
    schemas = {each.version: parse_schema(each.schema) for each in known.versions}
    version = version or known.newest
    if version not in schemas:
        fail(f"topic {topic} has {known.newest or 'no'} versions of a schema")
    columns = to_arrow(b"", 0, 0, topic=topic, partition=partition).schema
    try:
        selection = Selection(rows, reading_schema(schemas[version]), columns)
    except BadFilter as error:
        fail(str(error))
    reader, unread = TypedReader(schemas, version), 0
    for chunk in nodes.read(wanted):
        records = _within(
            to_arrow(chunk.data, 0, chunk.size, topic=topic, partition=partition), wanted
        )
        found = selection.of(reader.read(records, known.since), records)
        for row, source in zip(found.table.to_pylist(), found.sources, strict=True):
            click.echo(_line(row, records["offset"][source].as_py()))
        for each in found.unread:
            talk(f"samelog: {each}")
        unread += len(found.unread)
    if unread:
        click.get_current_context().exit(EXIT_FAILED)


def _within(records: pa.Table, wanted: OffsetRange) -> pa.Table:
    from pyarrow import compute

    offsets = records["offset"]
    is_in = compute.and_(
        compute.greater_equal(offsets, wanted.start), compute.less(offsets, wanted.end)
    )
    return records.filter(is_in)


def _line(row: dict[str, Any], offset: int) -> str:
    shown = {"offset": offset, "row": row} if wants_json() else row
    return msgspec.json.encode(shown).decode()
