"""`samelog subscribe`: the records of topics on standard output.

Invariant: with --name, a position is stored only after its records were written out.
"""

from __future__ import annotations

import signal
import sys
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import BinaryIO

import click
import msgspec

from samelog.cli.output import fail, optional_client_option, progress
from samelog.cli.replay import Replay
from samelog.config.tables.client import ClientConfig
from samelog.format._kernels import Record
from samelog.subscriber.start import NamedStart, StartOption
from samelog.subscriber.subscriber import Subscriber

BATCH_RECORDS = 1000
FORMATS = ("value", "json")


def parse_from(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> StartOption | None:
    """A name, an offset, or an ISO 8601 moment (UTC unless it says)."""
    if text is None or text in {start.value for start in NamedStart}:
        return text
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        names = ", ".join(start.value for start in NamedStart)
        raise click.BadParameter(f"{text!r} is none of {names}, an offset, a time") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@click.command()
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="May be repeated.  [default: topics of the configuration]",
)
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Holds the copies.")
@click.option(
    "--from",
    "start",
    callback=parse_from,
    help="earliest, latest, stored, an offset, or a time (ISO 8601).  [default: earliest; stored "
    "with --name]",
)
@click.option("--partition", "partitions", multiple=True, type=click.IntRange(min=0))
@click.option("--name", help="Store positions under this name, and go on there.")
@click.option("--max", "limit", type=click.IntRange(min=1), help="End after so many records.")
@click.option("--follow/--no-follow", default=True, show_default=True, help="Wait for more.")
@click.option("--replay", is_flag=True, help="Show records as far apart as they were written.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    help="With --replay: how many times as fast.  [default: 1]",
)
@click.option("--format", "kind", default="value", show_default=True, type=click.Choice(FORMATS))
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@optional_client_option
def command(
    config: ClientConfig | None,
    *,
    topics: tuple[str, ...],
    directory: str | None,
    start: StartOption | None,
    partitions: tuple[int, ...],
    name: str | None,
    limit: int | None,
    follow: bool,
    replay: bool,
    speed: float | None,
    kind: str,
    as_json: bool,
) -> None:
    """Print the records of topics: their values, a line each, or JSON objects with all there is.

    The copies in --dir (or `dir` in [subscriber] of the configuration) are kept up to date while
    this runs. Without --config, files that somebody else keeps are read: a sidecar's, or the
    `merged` directory of a node. JSON holds text where bytes are UTF-8, else {"base64": ...}.

    \b
    Examples:
      samelog subscribe --config client.toml --topic flights --dir copies --from latest
      samelog subscribe --topic flights --dir node/data/merged --no-follow --json | jq .value
      samelog subscribe --config client.toml --topic trades --dir copies --name report --max 1000
      samelog subscribe --config client.toml --topic trades --dir copies --replay --speed 60
      samelog subscribe --config https://config.example.com/samelog/reports.toml --dir copies
    """
    if speed is not None and not replay:
        raise click.UsageError("--speed has no meaning without --replay")
    topics = topics or (() if config is None else config.subscriber.topics)
    if not topics:
        raise click.UsageError("--topic is missing, and there are no topics in [subscriber]")
    if replay and len(topics) > 1:
        raise click.UsageError("--replay shows one topic")
    show = as_line if as_json or kind == "json" else as_value
    subscriber = Subscriber(
        topics,
        directory=directory,
        config=config,
        start=start,
        name=name,
        partitions=partitions or None,
        follow=follow,
    )
    with subscriber:
        paced = Replay(subscriber, speed or 1.0) if replay else None
        stop = subscriber.stop_soon if paced is None else paced.stop_soon
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop())
        out = sys.stdout.buffer
        if paced is None:
            count = copy_out(subscriber, out, show, limit)
        else:
            count = paced.copy_out(out, show, limit)
        if name is not None and not (paced and paced.is_cut_short):
            subscriber.commit()
    if count == 0 and limit is not None:
        fail("there was no record")


def copy_out(
    subscriber: Subscriber, out: BinaryIO, show: Callable[[Record], bytes], limit: int | None
) -> int:
    """Write records until there are no more, or `limit` are written; how many."""
    count = 0
    with progress("records", limit) as advance:
        while not subscriber.is_over and (limit is None or count < limit):
            most = BATCH_RECORDS if limit is None else min(BATCH_RECORDS, limit - count)
            records = subscriber.batch(most)
            out.write(b"".join(show(record) + b"\n" for record in records))
            out.flush()
            count += len(records)
            advance(len(records))
    return count


def as_value(record: Record) -> bytes:
    """A record's value; nothing for null."""
    return record.value or b""


def as_line(record: Record) -> bytes:
    """All of a record as a JSON object."""
    return msgspec.json.encode(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": as_text(record.key),
            "value": as_text(record.value),
            "headers": [[name, as_text(value)] for name, value in record.headers],
        }
    )


def as_text(data: bytes | None) -> object:
    """Bytes as JSON can hold them."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
