"""`samelog subscribe`: the records of topics on standard output.

Invariant: with --name or --group, a position is stored only after its records were written out;
with --replay, a record is shown no earlier than its time has come.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import BinaryIO, TypedDict, Unpack

import click

from samelog.cli.live_names import complete_groups, complete_topics
from samelog.cli.numbers import COUNT, GAP_S, PARTITION, SPEED
from samelog.cli.output import api_usage, fail, optional_client_option, progress
from samelog.cli.record_text import as_line, as_row, as_row_line, as_value
from samelog.config.tables.client import ClientConfig
from samelog.format.arguments import parse_digits, shown
from samelog.format.file_names import parse_input_name
from samelog.format.numbers import OFFSETS
from samelog.format.transactions import Isolation
from samelog.subscriber.filters import Corrupt
from samelog.subscriber.start import NamedStart, StartOption
from samelog.subscriber.subscriber import Subscriber
from samelog.subscriber.topics.chosen import is_pattern

BATCH_RECORDS = 1000
FORMATS = ("value", "json")
ISOLATIONS = tuple(each.value for each in Isolation)


class _Reading(TypedDict):
    """Options that are the subscriber's own."""

    start: StartOption | None
    partitions: tuple[int, ...] | None
    name: str | None
    group: str | None
    follow: bool
    where: str | None
    columns: list[str] | None
    isolation: str
    corrupt: str
    registry: str | None
    max_gap: float | None


max_gap_option = click.option(
    "--max-gap",
    metavar="SECONDS",
    type=GAP_S,
    help="Of a replay: the longest wait between two records.  [default: 10]",
)


def parse_from(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> StartOption | None:
    """A name, an offset, or an ISO 8601 moment (UTC unless it says)."""
    if text is None or text in {start.value for start in NamedStart}:
        return text
    offset = parse_digits(text, OFFSETS)
    if offset is not None:
        return offset
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        names = ", ".join(start.value for start in NamedStart)
        raise click.BadParameter(
            f"{shown(text)} is none of {names}, an offset (at most {OFFSETS[-1]}), a time"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@click.command()
@click.option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    help="May be repeated; a name, or a pattern: ed*, re:ed[0-9]+, or * for all that may be read.  "
    "[default: topics of the configuration]",
)
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Holds the copies.")
@click.option(
    "--from",
    "start",
    callback=parse_from,
    help="earliest, latest, stored, an offset, or a time (ISO 8601).  [default: earliest; stored "
    "with --name]",
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=PARTITION,
    callback=lambda context, parameter, given: given or None,
)
@click.option("--name", help="Store positions under this name, and go on there.")
@click.option(
    "--group",
    shell_complete=complete_groups,
    help="Be a member of this group, which shares the partitions and has the positions.",
)
@click.option("--where", metavar="CONDITION", help="Only rows, or records, that meet it.")
@click.option(
    "--columns",
    metavar="A,B",
    callback=lambda context, parameter, given: given and given.split(","),
    help="Only these columns of the topic's schema.",
)
@click.option(
    "--isolation",
    default=Isolation.READ_UNCOMMITTED.value,
    show_default=True,
    type=click.Choice(ISOLATIONS),
    help="Whether records of transactions that are open or aborted are shown.",
)
@click.option(
    "--corrupt",
    default=Corrupt.RAISE.value,
    show_default=True,
    type=click.Choice([each.value for each in Corrupt]),
    help="What is done with a record that is no row of the schema.",
)
@click.option(
    "--registry",
    metavar="URL",
    help="Print rows of the topic's schema, also of values in Confluent's wire format, by the "
    "schemas of this registry.",
)
@click.option("--max", "limit", type=COUNT, help="End after so many records.")
@click.option("--follow/--no-follow", default=True, show_default=True, help="Wait for more.")
@click.option("--replay", is_flag=True, help="Show records as far apart as they were written.")
@click.option(
    "--speed",
    type=SPEED,
    help="With --replay: how many times as fast.  [default: 1]",
)
@max_gap_option
@click.option("--format", "kind", default="value", show_default=True, type=click.Choice(FORMATS))
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@optional_client_option
def command(
    config: ClientConfig | None,
    *,
    topics: tuple[str, ...],
    directory: str | None,
    limit: int | None,
    replay: bool,
    speed: float | None,
    kind: str,
    as_json: bool,
    **reading: Unpack[_Reading],
) -> None:
    """Print the records of topics: their values, a line each, or JSON objects with all there is.

    The copies in --dir (or `dir` in [subscriber] of the configuration) are kept up to date while
    this runs. Without --config, files that somebody else keeps are read: a sidecar's, or the
    `merged` directory of a node. JSON holds text where bytes are UTF-8, else {"base64": ...}.

    With --where or --columns, rows of the topic's schema are printed, as JSON. Nodes leave out what
    is not wanted, so that it does not come over the line. Of a topic without a schema the records
    that pass are printed.

    \b
    Examples:
      samelog subscribe --config client.toml --topic flights --dir copies --from latest
      samelog subscribe --topic flights --dir node/data/merged --no-follow --json | jq .value
      samelog subscribe --config client.toml --topic trades --dir copies --name report --max 1000
      samelog subscribe --config client.toml --topic trades --dir copies --group billing
      samelog subscribe --config client.toml --topic 'ed*' --dir copies --json
      samelog subscribe --config client.toml --topic ticks --dir few --where "price > 100"
      samelog subscribe --config client.toml --topic trades --dir copies --replay --speed 60
      samelog subscribe --config https://config.example/samelog/reports.toml --dir copies
    """
    topics = _checked(config, topics, replay=replay, speed=speed)
    is_json = as_json or kind == "json"
    if config is None and directory is not None:
        _check_there(directory, topics, follow=reading["follow"])
    pace = (speed or 1.0) if replay else None
    with api_usage():
        subscriber = Subscriber(topics, directory=directory, config=config, replay=pace, **reading)
    with subscriber:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: subscriber.stop_soon())
        lines = _lines(subscriber, registry=reading["registry"], is_json=is_json)
        count = copy_out(subscriber, sys.stdout.buffer, lines, limit)
        if subscriber.has_positions:
            subscriber.commit()
    if count == 0 and limit is not None:
        fail("there was no record")


def _checked(
    config: ClientConfig | None, topics: tuple[str, ...], *, replay: bool, speed: float | None
) -> tuple[str, ...]:
    """The topics to show."""
    topics = topics or (() if config is None else config.subscriber.topics)
    if speed is not None and not replay:
        raise click.UsageError("--speed has no meaning without --replay")
    if not topics:
        raise click.UsageError("--topic is missing, and there are no topics in [subscriber]")
    return topics


def _check_there(directory: str, topics: Sequence[str], *, follow: bool) -> None:
    """Nobody else makes what is not there: a mistyped name is not an empty topic."""
    if not os.path.isdir(directory):
        fail(f"{directory} is no directory; to copy topics there, name a cluster with --config")
    found = {parsed[0] for name in os.listdir(directory) if (parsed := parse_input_name(name))}
    for topic in () if follow else topics:
        if topic not in found and not is_pattern(topic):
            there = ", ".join(sorted(found)) or "none"
            fail(f"{directory} has no copy of topic {topic!r}; it has: {there}")


def _lines(
    subscriber: Subscriber, *, registry: str | None, is_json: bool
) -> Callable[[int], list[bytes]]:
    """The next lines, of up to so many records: rows, if that is what the subscriber has."""
    if subscriber.is_of_rows or registry is not None:
        show_row = as_row_line if is_json else as_row
        return lambda most: [show_row(row) for row in subscriber.rows(most)]
    show = as_line if is_json else as_value
    return lambda most: [show(record) for record in subscriber.batch(most)]


def copy_out(
    subscriber: Subscriber,
    out: BinaryIO,
    lines: Callable[[int], list[bytes]],
    limit: int | None,
) -> int:
    """Write lines until there are no more, or `limit` are written; how many."""
    count = 0
    with _shown(out, limit) as advance:
        while not subscriber.is_over and (limit is None or count < limit):
            found = lines(BATCH_RECORDS if limit is None else min(BATCH_RECORDS, limit - count))
            out.write(b"".join(line + b"\n" for line in found))
            out.flush()
            count += len(found)
            advance(len(found))
    return count


def _shown(out: BinaryIO, limit: int | None) -> AbstractContextManager[Callable[[float], None]]:
    """Progress, unless the records are on the terminal themselves: a bar would be among them."""
    return nullcontext(lambda amount: None) if out.isatty() else progress("records", limit)
