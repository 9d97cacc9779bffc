"""`samelog subscribe`: the records of topics on standard output.

Invariant: with --name or --group, a position is stored only after its records were written out;
with --replay, a record is shown no earlier than its time has come, and in the order it was read.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import BinaryIO, TypedDict, Unpack

import click

from samelog.cli.live_names import complete_groups, complete_topics
from samelog.cli.output import api_usage, fail, optional_client_option, progress
from samelog.cli.record_text import as_line, as_value
from samelog.config.tables.client import ClientConfig
from samelog.format._kernels import Record
from samelog.format.file_names import parse_input_name
from samelog.runtime.stop import Stop
from samelog.subscriber.start import NamedStart, StartOption
from samelog.subscriber.subscriber import Subscriber

BATCH_RECORDS = 1000
FORMATS = ("value", "json")


class _Reading(TypedDict):
    """Options that are the subscriber's own."""

    start: StartOption | None
    partitions: tuple[int, ...] | None
    name: str | None
    group: str | None
    follow: bool


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
    shell_complete=complete_topics,
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
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    callback=lambda context, parameter, given: given or None,
)
@click.option("--name", help="Store positions under this name, and go on there.")
@click.option(
    "--group",
    shell_complete=complete_groups,
    help="Be a member of this group, which shares the partitions and has the positions.",
)
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

    \b
    Examples:
      samelog subscribe --config client.toml --topic flights --dir copies --from latest
      samelog subscribe --topic flights --dir node/data/merged --no-follow --json | jq .value
      samelog subscribe --config client.toml --topic trades --dir copies --name report --max 1000
      samelog subscribe --config client.toml --topic trades --dir copies --group billing
      samelog subscribe --config client.toml --topic trades --dir copies --replay --speed 60
      samelog subscribe --config https://config.example.com/samelog/reports.toml --dir copies
    """
    topics = _checked(config, topics, replay=replay, speed=speed)
    show = as_line if as_json or kind == "json" else as_value
    if config is None and directory is not None:
        _check_there(directory, topics, follow=reading["follow"])
    with api_usage():
        subscriber = Subscriber(topics, directory=directory, config=config, **reading)
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
        if subscriber.has_positions and not (paced and paced.is_cut_short):
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
    if replay and len(topics) > 1:
        raise click.UsageError("--replay shows one topic")
    return topics


def _check_there(directory: str, topics: Sequence[str], *, follow: bool) -> None:
    """Nobody else makes what is not there: a mistyped name is not an empty topic."""
    if not os.path.isdir(directory):
        fail(f"{directory} is no directory; to copy topics there, name a cluster with --config")
    found = {parsed[0] for name in os.listdir(directory) if (parsed := parse_input_name(name))}
    for topic in () if follow else topics:
        if topic not in found:
            there = ", ".join(sorted(found)) or "none"
            fail(f"{directory} has no copy of topic {topic!r}; it has: {there}")


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


# --- as far apart in time as they were written ----------------------------------------------------


class Pace:
    """When records are due, by their timestamps. `speed`: 2 is twice as fast as they came."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._begin: tuple[float, int] | None = None
        """When the first record was shown, and its timestamp."""

    def wait_s(self, timestamp_ms: int, now: float) -> float:
        """Seconds until a record is due; one that is older than those before it is due at once."""
        if self._begin is None:
            self._begin = now, timestamp_ms
        began_at, first_ms = self._begin
        return max(0.0, began_at + (timestamp_ms - first_ms) / 1000 / self._speed - now)


class Replay:
    """One partition's records, shown in their time."""

    def __init__(self, subscriber: Subscriber, speed: float) -> None:
        self._subscriber = subscriber
        self._pace = Pace(speed)
        self._stop = Stop()
        self._partition: int | None = None
        self.is_cut_short = False
        """Whether a record was read and not shown."""

    def stop_soon(self) -> None:
        """Show nothing more."""
        self._stop.set()
        self._subscriber.stop_soon()

    def copy_out(self, out: BinaryIO, show: Callable[[Record], bytes], limit: int | None) -> int:
        """Write records until there are no more, or `limit` are written; how many."""
        count = 0
        while not self._subscriber.is_over and (limit is None or count < limit):
            for record in self._subscriber.batch(1):
                self._check(record)
                if self._stop.wait(self._pace.wait_s(record.timestamp, time.monotonic())):
                    self.is_cut_short = True
                    return count
                out.write(show(record) + b"\n")
                out.flush()
                count += 1
        return count

    def _check(self, record: Record) -> None:
        """Partitions have no order among each other, so only one can be shown in its time."""
        if self._partition not in (None, record.partition):
            fail("--replay shows one partition, and there are more: choose one with --partition")
        self._partition = record.partition
